#include "resnet.hpp"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace azq::nn {
namespace {

bf16 to_bf16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16>((bits >> 16) | 0x40U);
    return static_cast<bf16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// Vectors of the next output tile: the kernel knows 1 to 4, and 5 split better into 3 and 2.
int tile_vectors(int left) { return left == 5 ? 3 : std::min(left, 4); }

/// Positions a tile of that many vectors holds in 24 accumulators.
constexpr int tile_positions(int vectors) { return 24 / vectors; }

__m512bh as_bf16(__m512i x) { return std::bit_cast<__m512bh>(x); }

/// What a tile reads and where its results go.
struct Tile {
    const bf16* const* inputs;  // per tap: its first position's first channel
    int taps, pairs, stride;    // stride: channels from one position to the next
    const bf16* weights;
    const float* bias;
};

/// Adds a residual where there is one, applies relu, stores bfloat16. `out` and `residual` may be the same.
struct StoreRelu {
    bf16* out;
    const bf16* residual;
    int stride;

    void operator()(int position, int vector, __m512 sum) const {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes;
        if (residual) {
            const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(residual + at));
            sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)));
        }
        const __m256bh narrow = _mm512_cvtneps_pbh(_mm512_max_ps(sum, _mm512_setzero_ps()));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), std::bit_cast<__m256i>(narrow));
    }
};

struct StoreFloat {
    float* out;
    int stride;

    void operator()(int position, int vector, __m512 sum) const {
        _mm512_storeu_ps(out + static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes, sum);
    }
};

template <int V, class Store>
void run_tile(const Tile& tile, const Store& store) {
    constexpr int P = tile_positions(V);
    __m512 sums[P][V];
    for (int v = 0; v < V; ++v) {
        const __m512 bias = _mm512_loadu_ps(tile.bias + v * kLanes);
        for (int p = 0; p < P; ++p) sums[p][v] = bias;
    }
    const bf16* weights = tile.weights;
    for (int t = 0; t < tile.taps; ++t) {
        const bf16* input = tile.inputs[t];
        if (!input) {
            weights += tile.pairs * V * kLanes * 2;
            continue;
        }
        for (int k = 0; k < tile.pairs; ++k, weights += V * kLanes * 2) {
            __m512bh w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = as_bf16(_mm512_loadu_si512(weights + v * kLanes * 2));
#pragma GCC unroll 24
            for (int p = 0; p < P; ++p) {
                std::int32_t pair;
                std::memcpy(&pair, input + static_cast<std::ptrdiff_t>(p) * tile.stride + 2 * k, sizeof pair);
                const __m512bh x = as_bf16(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[p][v] = _mm512_dpbf16_ps(sums[p][v], w[v], x);
            }
        }
    }
#pragma GCC unroll 24
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(p, v, sums[p][v]);
}

/// One output location of a layer for the first `count` positions of a group. `at(position, vector)` gives the tile's store.
template <class StoreAt>
void run_layer(const Layer& layer, const bf16* const* taps, int stride, int count, const StoreAt& at) {
    const bf16* weights = layer.weights.data();
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        const int step = tile_positions(vectors);
        for (int p = 0; p < count; p += step) {
            const bf16* inputs[256];
            for (int t = 0; t < layer.taps; ++t) inputs[t] = taps[t] ? taps[t] + static_cast<std::ptrdiff_t>(p) * stride : nullptr;
            const Tile tile{inputs, layer.taps, layer.pairs(), stride, weights, layer.bias.data() + done * kLanes};
            const auto store = at(p, done);
            switch (vectors) {
                case 1: run_tile<1>(tile, store); break;
                case 2: run_tile<2>(tile, store); break;
                case 3: run_tile<3>(tile, store); break;
                default: run_tile<4>(tile, store); break;
            }
        }
        weights += static_cast<std::ptrdiff_t>(layer.taps) * layer.pairs() * vectors * kLanes * 2;
        done += vectors;
    }
}

/// Buffers of one group, zeroed once: whatever lies in positions beyond the count stays finite or is never read.
struct Workspace {
    explicit Workspace(const Network& n)
        : input_stride((n.shape.planes + 1) / 2 * 2),
          stride(n.squeeze.inputs ? (n.shape.channels + kLanes - 1) / kLanes * kLanes : 0),
          squeezed_stride(n.squeeze.vectors() * kLanes),
          hidden_stride(n.value_hidden.vectors() * kLanes),
          input(size(n, input_stride)),
          x(size(n, stride)),
          h(size(n, stride)),
          squeezed(size(n, squeezed_stride)),
          hidden(static_cast<std::size_t>(kGroup * hidden_stride)),
          policy(static_cast<std::size_t>(kGroup * n.policy.vectors() * kLanes)),
          value(static_cast<std::size_t>(kGroup * n.value.vectors() * kLanes)) {}

    static std::size_t size(const Network& n, int channels) {
        return static_cast<std::size_t>(n.shape.cells()) * kGroup * static_cast<std::size_t>(channels);
    }

    int input_stride, stride, squeezed_stride, hidden_stride;
    std::vector<bf16> input, x, h, squeezed, hidden;
    std::vector<float> policy, value;
};

void unpack(const Shape& shape, const std::uint8_t* packed, int count, Workspace& space) {
    constexpr bf16 one = 0x3f80;
    for (int p = 0; p < count; ++p, packed += shape.packed_size()) {
        int bit = 0;
        for (int plane = 0; plane < shape.planes; ++plane)
            for (int cell = 0; cell < shape.cells(); ++cell, ++bit)
                space.input[static_cast<std::size_t>((cell * kGroup + p) * space.input_stride + plane)] =
                    (packed[bit >> 3] >> (bit & 7)) & 1 ? one : bf16{0};
    }
}

/// 3x3, relu(conv(in) + residual), all cells of a group.
void convolve(const Shape& shape, const Layer& layer, const bf16* in, int in_stride, bf16* out, const bf16* residual, int stride, int count) {
    for (int row = 0; row < shape.rows; ++row)
        for (int col = 0; col < shape.cols; ++col) {
            const bf16* taps[9];
            for (int t = 0; t < 9; ++t) {
                const int r = row + t / 3 - 1, c = col + t % 3 - 1;
                const bool inside = r >= 0 && r < shape.rows && c >= 0 && c < shape.cols;
                taps[t] = inside ? in + static_cast<std::ptrdiff_t>(r * shape.cols + c) * kGroup * in_stride : nullptr;
            }
            const std::ptrdiff_t cell = static_cast<std::ptrdiff_t>(row * shape.cols + col) * kGroup * stride;
            run_layer(layer, taps, in_stride, count, [&](int p, int v) {
                const std::ptrdiff_t at = cell + static_cast<std::ptrdiff_t>(p) * stride + v * kLanes;
                return StoreRelu{out + at, residual ? residual + at : nullptr, stride};
            });
        }
}

/// Taps of a dense layer over all cells, whose channels begin at `first`.
std::vector<const bf16*> all_cells(const Shape& shape, const Workspace& space, int first) {
    std::vector<const bf16*> taps(static_cast<std::size_t>(shape.cells()));
    for (int cell = 0; cell < shape.cells(); ++cell)
        taps[static_cast<std::size_t>(cell)] = space.squeezed.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed_stride + first;
    return taps;
}

void heads(const Network& n, Workspace& space, int count) {
    const Shape& shape = n.shape;
    for (int cell = 0; cell < shape.cells(); ++cell) {
        const bf16* tap = space.x.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.stride;
        bf16* out = space.squeezed.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed_stride;
        run_layer(n.squeeze, &tap, space.stride, count, [&](int p, int v) {
            return StoreRelu{out + static_cast<std::ptrdiff_t>(p) * space.squeezed_stride + v * kLanes, nullptr, space.squeezed_stride};
        });
    }
    const int policy_stride = n.policy.vectors() * kLanes, value_stride = n.value.vectors() * kLanes;
    run_layer(n.policy, all_cells(shape, space, 0).data(), space.squeezed_stride, count, [&](int p, int v) {
        return StoreFloat{space.policy.data() + p * policy_stride + v * kLanes, policy_stride};
    });
    run_layer(n.value_hidden, all_cells(shape, space, shape.policy_channels).data(), space.squeezed_stride, count, [&](int p, int v) {
        return StoreRelu{space.hidden.data() + p * space.hidden_stride + v * kLanes, nullptr, space.hidden_stride};
    });
    const bf16* tap = space.hidden.data();
    run_layer(n.value, &tap, space.hidden_stride, count, [&](int p, int v) {
        return StoreFloat{space.value.data() + p * value_stride + v * kLanes, value_stride};
    });
}

std::uint16_t to_half(float x) { return static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }

}  // namespace

Layer pack(const float* weights, const float* bias, int outputs, int inputs, int taps) {
    Layer layer{inputs, outputs, taps, {}, {}};
    const int padded = layer.vectors() * kLanes;
    layer.bias.assign(static_cast<std::size_t>(padded), 0.0F);
    std::copy(bias, bias + outputs, layer.bias.begin());
    layer.weights.reserve(static_cast<std::size_t>(padded * taps * layer.pairs() * 2));
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        for (int t = 0; t < taps; ++t)
            for (int pair = 0; pair < layer.pairs(); ++pair)
                for (int o = done * kLanes; o < (done + vectors) * kLanes; ++o)
                    for (int i = 2 * pair; i < 2 * pair + 2; ++i)
                        layer.weights.push_back(o < outputs && i < inputs ? to_bf16(weights[(o * inputs + i) * taps + t]) : bf16{0});
        done += vectors;
    }
    return layer;
}

void forward(const Network& n, const std::uint8_t* packed, std::size_t count, std::uint16_t* logits, std::uint16_t* values) {
    const Shape& shape = n.shape;
    Workspace space(n);
    const int policy_stride = n.policy.vectors() * kLanes, value_stride = n.value.vectors() * kLanes;
    for (std::size_t done = 0; done < count; done += kGroup) {
        const int now = static_cast<int>(std::min<std::size_t>(kGroup, count - done));
        unpack(shape, packed + done * static_cast<std::size_t>(shape.packed_size()), now, space);
        convolve(shape, n.stem, space.input.data(), space.input_stride, space.x.data(), nullptr, space.stride, now);
        for (std::size_t b = 0; b + 1 < n.convolutions.size(); b += 2) {
            convolve(shape, n.convolutions[b], space.x.data(), space.stride, space.h.data(), nullptr, space.stride, now);
            convolve(shape, n.convolutions[b + 1], space.h.data(), space.stride, space.x.data(), space.x.data(), space.stride, now);
        }
        heads(n, space, now);
        for (int p = 0; p < now; ++p) {
            for (int a = 0; a < shape.actions; ++a) *logits++ = to_half(space.policy[static_cast<std::size_t>(p * policy_stride + a)]);
            for (int v = 0; v < shape.values; ++v) *values++ = to_half(std::tanh(space.value[static_cast<std::size_t>(p * value_stride + v)]));
        }
    }
}

}  // namespace azq::nn
