/// A 3 x 3 convolution of whole numbers with fewer products, and the same sums to the bit (Winograd's; Toom's and Cook's points).
///
/// A line of n = 2, 3 or 4 outputs is a product of polynomials, known by its values at n + 2 points: 0, infinity, 1, -1, 2, -2, in that
/// order. Weights at all points serve every n. A tile of n x m outputs is summed over channels at (n + 2) (m + 2) points, instead of at 9
/// taps for each of its n m cells. What comes back from the points is the sum times a known factor, in 32 bits that wrap: so it is divided
/// exactly, by the inverse of the factor's odd part and a shift, where the sum has as many bits to spare as the shift takes.
///
/// Room of 16 bits: activations to 255 grow to 255 * 8 * 10 at most, weights to 127 * 7 * 7.
#pragma once

#include "kernel.hpp"

namespace azq::nn {

/// Worth its transforms where a word holds two activations anyhow.
inline constexpr bool kWinograd = kAWord<Bytes> == kAWord<Words>;
inline constexpr int kLinePoints = 6, kPoints = kLinePoints * kLinePoints, kLongest = 4;
inline constexpr int kSpareBits = 6;  // of the largest tile's sums

using Shorts [[gnu::vector_size(4 * kLanes)]] = std::int16_t;

/// Outputs of a line's next segment: 4, 3 or 2 of the two or more that are left, so that none is left alone.
constexpr int segment(int left) { return left == 5 ? 3 : left < kLongest ? left : kLongest; }

/// Weights (outputs, inputs, 9) at the points: (outputs, inputs, 36).
inline std::vector<std::int16_t> weights_at_points(const std::vector<std::int8_t>& weights) {
    constexpr int kAt[kLinePoints][3] = {{1, 0, 0}, {0, 0, 1}, {1, 1, 1}, {1, -1, 1}, {1, 2, 4}, {1, -2, 4}};
    std::vector<std::int16_t> out;
    out.reserve(weights.size() * kPoints / 9);
    for (std::size_t first = 0; first < weights.size(); first += 9)
        for (const auto& row : kAt)
            for (const auto& column : kAt) {
                int sum = 0;
                for (std::size_t t = 0; t < 9; ++t) sum += row[t / 3] * column[t % 3] * weights[first + t];
                out.push_back(static_cast<std::int16_t>(sum));
            }
    return out;
}

/// Where a pass over lines reads or writes: from one line to the next, and from one number of it to the next.
template <class Number>
struct Lines {
    Number* first;
    std::ptrdiff_t next, step;
};

/// `count` lines of N + 2 activations at their points.
template <int N>
void to_points(Lines<const std::int16_t> in, Lines<std::int16_t> out, int count) {
    for (; count > 0; --count, in.first += in.next, out.first += out.next) {
        Shorts d[N + 2];
        for (int i = 0; i < N + 2; ++i) d[i] = load<Shorts>(in.first + i * in.step);
        const auto put = [&](int point, Shorts x) { std::memcpy(out.first + point * out.step, &x, sizeof x); };
        if constexpr (N == 2) {
            put(0, d[2] - d[0]);
            put(1, d[3] - d[1]);
            put(2, d[2] + d[1]);
            put(3, d[2] - d[1]);
        } else if constexpr (N == 3) {
            const Shorts odd = d[3] - d[1];
            put(0, odd - 2 * (d[2] - d[0]));
            put(1, d[4] - d[2] - 2 * odd);
            put(2, d[3] - d[2] - 2 * d[1]);
            put(3, d[3] - 3 * d[2] + 2 * d[1]);
            put(4, odd);
        } else {
            const Shorts even = d[4] - d[2], odd = d[3] - d[1], fours = d[4] - 4 * d[2], ones = d[3] - 4 * d[1];
            put(0, even - 4 * (d[2] - d[0]));
            put(1, d[5] - d[3] - 4 * odd);
            put(2, fours + ones);
            put(3, fours - ones);
            put(4, even + 2 * odd);
            put(5, even - 2 * odd);
        }
    }
}

/// `count` lines of N outputs from their sums at the points, times 2, 6 or 24.
template <int N>
void from_points(Lines<const std::uint32_t> in, Lines<std::uint32_t> out, int count) {
    for (; count > 0; --count, in.first += in.next, out.first += out.next) {
        Wraps m[N + 2];
        for (int i = 0; i < N + 2; ++i) m[i] = load<Wraps>(in.first + i * in.step);
        const auto put = [&](int output, Wraps x) { std::memcpy(out.first + output * out.step, &x, sizeof x); };
        if constexpr (N == 2) {
            put(0, m[2] + m[3] - 2 * m[0]);
            put(1, m[2] - m[3] + 2 * m[1]);
        } else if constexpr (N == 3) {
            const Wraps one = 3 * m[2];
            put(0, 3 * m[0] - one - m[3] + m[4]);
            put(1, m[3] - one + 2 * m[4]);
            put(2, 6 * m[1] + 4 * m[4] - one - m[3]);
        } else {
            const Wraps even = 4 * (m[2] + m[3]), odd = 4 * (m[2] - m[3]), evens = m[4] + m[5], odds = m[4] - m[5];
            put(0, 6 * m[0] - even + evens);
            put(1, 2 * odds - odd);
            put(2, 4 * evens - even);
            put(3, 8 * odds - odd + 24 * m[1]);
        }
    }
}

/// Calls with a segment's length as a constant.
template <class Call>
void by_length(int n, const Call& call) {
    n == 2 ? call(std::integral_constant<int, 2>{}) : n == 3 ? call(std::integral_constant<int, 3>{}) : call(std::integral_constant<int, 4>{});
}

/// A tile of outputs.
struct Patch {
    int row, column, rows, columns;
};

/// Activations of a patch at its points: [point][position][channel], of a framed map with `wide` cells a row, `cell` numbers from each to
/// the next.
inline void patch_to_points(const Patch& patch, const std::int16_t* framed, int wide, std::ptrdiff_t cell, int count, std::int16_t* out) {
    constexpr int kStep = 2 * kLanes;
    std::int16_t between[kPoints * kStep];
    const std::int16_t* first = framed + (patch.row * wide + patch.column) * cell;
    for (int k = 0; k < count; k += kStep) {
        by_length(patch.rows, [&]<int N>(std::integral_constant<int, N>) {
            to_points<N>({first + k, cell, wide * cell}, {between, kStep, kLinePoints * kStep}, patch.columns + 2);
        });
        by_length(patch.columns, [&]<int N>(std::integral_constant<int, N>) {
            to_points<N>({between, kLinePoints * kStep, kStep}, {out + k, kLinePoints * cell, cell}, patch.rows + 2);
        });
    }
}

/// Sums of a patch's outputs times both lines' factors, [row][kLongest][lane], from those at its points, `step` numbers from each to the next.
inline void patch_from_points(const Patch& patch, const std::uint32_t* sums, std::ptrdiff_t step, std::uint32_t* out) {
    std::uint32_t between[kLongest * kLinePoints * kLanes];
    by_length(patch.rows, [&]<int N>(std::integral_constant<int, N>) {
        from_points<N>({sums, step, kLinePoints * step}, {between, kLanes, kLinePoints * kLanes}, patch.columns + 2);
    });
    by_length(patch.columns, [&]<int N>(std::integral_constant<int, N>) {
        from_points<N>({between, kLinePoints * kLanes, kLanes}, {out, kLongest * kLanes, kLanes}, patch.rows);
    });
}

/// What a tile of the kernel leaves at a point: [position][output].
struct Keep {
    std::uint32_t* out;

    template <int V>
    void operator()(int position, const Ints* sums) const {
        std::memcpy(out + position * V * kLanes, sums, V * sizeof(Ints));
    }
};

/// Numbers of a patch as `Store` has them, for a layer with relu; `all` stores its first cell.
inline void store_patch(const Patch& patch, const std::uint32_t* sums, int vectors, int wide, int count, const Store& all) {
    const int width = vectors * kLanes, shift = (patch.rows == 4 ? 3 : 1) + (patch.columns == 4 ? 3 : 1);
    constexpr std::uint32_t kThird = 0xAAAAAAABU;  // 3 times it is 1, in 32 bits
    const std::uint32_t inverse = (patch.rows == 2 ? 1U : kThird) * (patch.columns == 2 ? 1U : kThird);
    const std::ptrdiff_t cell = static_cast<std::ptrdiff_t>(kGroup) * all.stride;
    std::uint32_t outputs[kLongest * kLongest * kLanes];
    for (int p = 0; p < count; ++p) {
        Floats most = load<Floats>(all.largest + p * kLanes);
        for (int v = 0; v < width; v += kLanes) {
            patch_from_points(patch, sums + p * width + v, static_cast<std::ptrdiff_t>(kGroup) * width, outputs);
            const Floats scale = load<Floats>(all.scales + v) * all.worth[p], bias = load<Floats>(all.bias + v);
            for (int r = 0; r < patch.rows; ++r)
                for (int c = 0; c < patch.columns; ++c) {
                    const Ints sum = std::bit_cast<Ints>(load<Wraps>(outputs + (r * kLongest + c) * kLanes) * inverse) >> shift;
                    const std::ptrdiff_t at = (r * wide + c) * cell + p * all.stride + v;
                    Floats y = __builtin_convertvector(sum, Floats) * scale + bias;
                    if (all.residual) y = y + load<Floats>(all.residual + at);
                    most = larger(most, y = larger(y, Floats{}));
                    store(all.out + at, y);
                }
        }
        store(all.largest + p * kLanes, most);
    }
}

/// relu(layer(framed) + residual) over a board; `all` stores its first cell.
inline void run_winograd(const Layer& layer, int rows, int columns, const std::int16_t* framed, int count, Workspace& space, const Store& all) {
    const std::ptrdiff_t stride = all.stride, cell = kGroup * stride;
    for (Patch patch{}; patch.row < rows; patch.row += patch.rows) {
        patch.rows = segment(rows - patch.row);
        for (patch.column = 0; patch.column < columns; patch.column += patch.columns) {
            patch.columns = segment(columns - patch.column);
            patch_to_points(patch, framed, columns + 2, cell, count * all.stride, space.at_points.data());
            const std::int32_t* weights = layer.weights.data();
            for (int done = 0; done < layer.vectors();) {
                const int vectors = tile_vectors(layer.vectors() - done), width = vectors * kLanes, step = tile_positions(vectors);
                for (int point = 0; point < kPoints; ++point, weights += layer.words() * width) {
                    if (point / kLinePoints >= patch.rows + 2 || point % kLinePoints >= patch.columns + 2) continue;
                    for (int p = 0; p < count; p += step) {
                        const auto* in = reinterpret_cast<const std::byte*>(space.at_points.data() + point * cell + p * stride);
                        const Tile tile{&in, 1, layer.words(), all.stride * 2, weights};
                        with_vectors(vectors, [&]<int V> { run_tile<Words, V>(tile, Keep{space.point_sums.data() + (point * kGroup + p) * width}); });
                    }
                }
                const std::ptrdiff_t at = (patch.row * columns + patch.column) * cell + done * kLanes;
                const Store finish{all.scales + done * kLanes, all.bias + done * kLanes, all.worth, all.out + at,
                                   all.residual ? all.residual + at : nullptr, all.largest, all.stride};
                store_patch(patch, space.point_sums.data(), vectors, columns, count, finish);
                done += vectors;
            }
        }
    }
}

}  // namespace azq::nn
