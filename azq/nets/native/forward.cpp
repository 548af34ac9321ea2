#include <algorithm>
#include <array>
#include <bit>

#include "winograd.hpp"

namespace azq::nn {
namespace {

constexpr std::int16_t kBit = 16;  // a bit of an observation, beside scalars, of which networks take sixteenths
constexpr float kInputWorth = 1.0F / kBit;

constexpr int padded(int channels) { return (channels + kLanes - 1) / kLanes * kLanes; }

Map map_of(int cells, int channels) {
    const int stride = padded(channels);
    return {stride, std::vector<float>(static_cast<std::size_t>(cells * kGroup * stride)), std::vector<float>(kGroup * kLanes)};
}

/// Writes what an observation says, plane after plane as it is packed, and with `parity` one everywhere in the last plane.
void unpack(const Shape& shape, const std::uint8_t* packed, int count, Workspace& space) {
    std::fill(space.input.begin(), space.input.end(), std::int16_t{0});
    for (int p = 0; p < count; ++p, packed += shape.packed_size()) {
        std::int16_t* input = space.input.data() + static_cast<std::ptrdiff_t>(p) * space.input_stride;
        bool odd = false;
        for (int byte = 0; byte < shape.plane_bytes(); ++byte)
            for (unsigned bits = packed[byte]; bits; bits &= bits - 1) {
                const auto bit = static_cast<std::size_t>(byte * 8 + std::countr_zero(bits));
                if (bit >= space.at_bit.size()) continue;
                input[space.at_bit[bit]] = kBit;
                odd = !odd;
            }
        for (int s = 0; s < shape.scalars; ++s)
            input[shape.planes * shape.squares() + s] = static_cast<std::int8_t>(packed[shape.plane_bytes() + s]);
        if (!shape.parity || !odd) continue;
        for (int cell = 0; cell < shape.cells(); ++cell)
            input[static_cast<std::ptrdiff_t>(cell) * kGroup * space.input_stride + shape.planes] = kBit;
    }
}

/// Rounds each position's numbers (none negative) to whole ones, of which its largest is `most`; returns [cell][position][channel], of a
/// board with `columns` within a frame of zeros.
template <class Math>
const typename Math::Quantum* quantise(const Map& in, int cells, int most, int count, Workspace& space, int columns = 0) {
    auto* const first = reinterpret_cast<typename Math::Quantum*>(columns ? space.framed.data() : space.quanta.data());
    const float *from = in.at.data(), whole = static_cast<float>(most);
    const int stride = in.stride;
    std::array<float, kGroup> factors;
    for (int p = 0; p < count; ++p) {
        const float largest = largest_of(load<Floats>(in.largest.data() + p * kLanes));
        factors[static_cast<std::size_t>(p)] = largest > 0 ? whole / largest : 0.0F;
        space.worth[static_cast<std::size_t>(p)] = largest / whole;
    }
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(kGroup) * stride;
    for (int cell = 0; cell < cells; ++cell, from += next) {
        const int place = columns ? cell + columns + 3 + cell / columns * 2 : cell;
        for (int p = 0; p < count; ++p)
            for (int c = 0; c < stride; c += kLanes)
                store_whole(first + place * next + p * stride + c, rounded(load<Floats>(from + p * stride + c) * factors[static_cast<std::size_t>(p)]));
    }
    return first;
}

/// What stores a layer's numbers at one cell of a map.
Store store_at(const Layer& layer, Map& out, int cell, const Workspace& space, bool relu, const Map* residual = nullptr) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(cell) * kGroup * out.stride;
    return {layer.scale.data(), layer.bias.data(), space.worth.data(), out.at.data() + at, residual ? residual->at.data() + at : nullptr,
            relu ? out.largest.data() : nullptr, out.stride};
}

/// relu(layer(in) + residual) at every cell; taps off the board are null.
template <class Math>
void spread_over(const Shape& shape, const Layer& layer, const typename Math::Quantum* in, int stride, Map& out, const Map* residual,
                 const Workspace& space, int count) {
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(kGroup) * stride;
    std::fill(out.largest.begin(), out.largest.end(), 0.0F);
    for (int cell = 0; cell < shape.cells(); ++cell) {
        std::array<const typename Math::Quantum*, 9> taps{in + cell * next};
        for (int t = 0; layer.taps > 1 && t < layer.taps; ++t) {
            const int r = cell / shape.cols + t / 3 - 1, c = cell % shape.cols + t % 3 - 1;
            const bool inside = r >= 0 && r < shape.rows && c >= 0 && c < shape.cols;
            taps[static_cast<std::size_t>(t)] = inside ? in + (r * shape.cols + c) * next : nullptr;
        }
        run_layer<Math>(layer, taps.data(), stride, count, store_at(layer, out, cell, space, true, residual));
    }
}

void run_block_layer(const Shape& shape, const Layer& layer, const Map& in, Map& out, const Map* residual, Workspace& space, int count) {
    const auto run = [&]<class Math>(Math) {
        spread_over<Math>(shape, layer, quantise<Math>(in, shape.cells(), layer.most, count, space), in.stride, out, residual, space, count);
    };
    if (!layer.winograd) return layer.bytes ? run(Bytes{}) : run(Words{});
    const std::int16_t* framed = quantise<Words>(in, shape.cells(), layer.most, count, space, shape.cols);
    std::fill(out.largest.begin(), out.largest.end(), 0.0F);
    run_winograd(layer, shape.rows, shape.cols, framed, count, space, store_at(layer, out, 0, space, true, residual));
}

/// Mean and largest of each squeezed channel over all cells: [position][means, then the largest].
void pool(const Shape& shape, Workspace& space, int count) {
    const Map& in = space.squeezed;
    Map& out = space.pooled;
    const float share = 1.0F / static_cast<float>(shape.cells());
    for (int p = 0; p < count; ++p) {
        Floats largest{};
        for (int c = 0; c < in.stride; c += kLanes) {
            Floats sum{}, most{};  // none is negative
            for (int cell = 0; cell < shape.cells(); ++cell) {
                const auto x = load<Floats>(in.at.data() + (static_cast<std::ptrdiff_t>(cell) * kGroup + p) * in.stride + c);
                sum = sum + x;
                most = larger(most, x);
            }
            float* to = out.at.data() + static_cast<std::ptrdiff_t>(p) * out.stride + c;
            store(to, sum * share);
            store(to + in.stride, most);
            largest = larger(largest, most);
        }
        store(out.largest.data() + p * kLanes, largest);
    }
}

/// A layer whose taps are given, into a map of one cell.
void run_dense(const Layer& layer, const std::int16_t* const* taps, int stride, Map& out, bool relu, const Workspace& space, int count) {
    std::fill(out.largest.begin(), out.largest.end(), 0.0F);
    run_layer<Words>(layer, taps, stride, count, store_at(layer, out, 0, space, relu));
}

/// Logits of each cell or column, and of actions that lie nowhere.
void global_policy(const Network& n, const std::int16_t* squeezed, Workspace& space, int count) {
    const Shape& shape = n.shape;
    const auto logits_of = [&](int p) { return space.policy.at.data() + p * space.policy.stride; };
    const float share = shape.by_column ? 1.0F / static_cast<float>(shape.rows) : 1.0F;
    std::fill(space.policy.at.begin(), space.policy.at.end(), 0.0F);
    for (int cell = 0; cell < shape.cells(); ++cell) {
        const std::int16_t* tap = squeezed + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed.stride;
        const int place = shape.by_column ? cell % shape.cols : cell;
        run_dense(n.policy, &tap, space.squeezed.stride, space.place, false, space, count);
        for (int p = 0; p < count; ++p)
            for (int plane = 0; plane < shape.action_planes; ++plane)
                logits_of(p)[plane * shape.places() + place] += share * space.place.at.data()[p * space.place.stride + plane];
    }
}

/// The layers that read pooled channels: actions that lie nowhere, and the value's hidden layer.
void pooled_heads(const Network& n, Workspace& space, int count) {
    const Shape& shape = n.shape;
    pool(shape, space, count);
    const int most = shape.beyond() ? std::min(n.beyond.most, n.value_hidden.most) : n.value_hidden.most;
    const std::int16_t* pooled = quantise<Words>(space.pooled, 1, most, count, space);
    const auto taps = [&](int first) { return std::array{pooled + first, pooled + space.squeezed.stride + first}; };
    run_dense(n.value_hidden, taps(shape.policy_channels).data(), space.pooled.stride, space.hidden, true, space, count);
    if (shape.beyond() == 0) return;
    run_dense(n.beyond, taps(0).data(), space.pooled.stride, space.place, false, space, count);
    for (int p = 0; p < count; ++p)
        std::copy_n(space.place.at.data() + p * space.place.stride, shape.beyond(),
                    space.policy.at.data() + p * space.policy.stride + shape.action_planes * shape.places());
}

/// Taps of a dense layer over all cells, whose channels begin at `first`.
std::vector<const std::int16_t*> all_cells(const Shape& shape, const std::int16_t* squeezed, int stride, int first) {
    std::vector<const std::int16_t*> taps(static_cast<std::size_t>(shape.cells()));
    for (int cell = 0; cell < shape.cells(); ++cell)
        taps[static_cast<std::size_t>(cell)] = squeezed + static_cast<std::ptrdiff_t>(cell) * kGroup * stride + first;
    return taps;
}

/// Policy, and the value's hidden layer, of a board.
void board_heads(const Network& n, Workspace& space, int count) {
    const Shape& shape = n.shape;
    const std::int16_t* whole = quantise<Words>(space.x, shape.cells(), n.squeeze.most, count, space);
    spread_over<Words>(shape, n.squeeze, whole, space.x.stride, space.squeezed, nullptr, space, count);
    const int most = shape.action_planes ? n.policy.most : std::min(n.policy.most, n.value_hidden.most);
    const std::int16_t* squeezed = quantise<Words>(space.squeezed, shape.cells(), most, count, space);
    const int stride = space.squeezed.stride;
    if (shape.action_planes) {
        global_policy(n, squeezed, space, count);
        pooled_heads(n, space, count);
    } else {
        run_dense(n.policy, all_cells(shape, squeezed, stride, 0).data(), stride, space.policy, false, space, count);
        run_dense(n.value_hidden, all_cells(shape, squeezed, stride, shape.policy_channels).data(), stride, space.hidden, true, space, count);
    }
    const std::int16_t* hidden = quantise<Words>(space.hidden, 1, n.value.most, count, space);
    run_dense(n.value, &hidden, space.hidden.stride, space.value, false, space, count);
}

/// The first layer.
void run_stem(const Network& n, Workspace& space, int count) {
    if (n.shape.board) return spread_over<Words>(n.shape, n.stem, space.input.data(), space.input_stride, space.x, nullptr, space, count);
    std::fill(space.x.largest.begin(), space.x.largest.end(), 0.0F);
    run_sparse(n.stem, space.input.data(), space.input_stride, count, store_at(n.stem, space.x, 0, space, true));
}

/// Policy and value of a perceptron.
void dense_heads(const Network& n, Workspace& space, int count) {
    const std::int16_t* whole = quantise<Words>(space.x, 1, std::min(n.policy.most, n.value.most), count, space);
    run_dense(n.policy, &whole, space.x.stride, space.policy, false, space, count);
    run_dense(n.value, &whole, space.x.stride, space.value, false, space, count);
}

float sigmoid(float x) { return x < 0 ? 1.0F - 1.0F / (1.0F + exp32(x)) : 1.0F / (1.0F + exp32(-x)); }
float tanh_of(float x) { return 2.0F * sigmoid(2.0F * x) - 1.0F; }

/// Rounds one position's outputs.
void write(const Network& n, const float* policy, const float* value, Half* logits, Half* values) {
    std::transform(policy, policy + n.shape.actions, logits, to_half);
    if (n.shape.outcomes == 0) {
        std::transform(value, value + n.shape.values, values, [](float x) { return to_half(tanh_of(x)); });
        return;
    }
    float sum = n.outcome_bias;
    for (int k = 0; k < n.shape.outcomes; ++k) sum += n.outcome_weights[static_cast<std::size_t>(k)] * sigmoid(value[k]);
    *values = to_half(sum);
}

}  // namespace

Workspace::Workspace(const Network& n)
    : input_stride((n.shape.inputs() + 1) / 2 * 2),
      input(static_cast<std::size_t>(n.shape.cells() * kGroup * input_stride)),
      x(map_of(n.shape.cells(), n.shape.channels)),
      h(map_of(n.shape.cells(), n.shape.channels)),
      squeezed(map_of(n.shape.cells(), n.squeeze.outputs)),
      pooled(map_of(1, 2 * squeezed.stride)),
      hidden(map_of(1, n.value_hidden.outputs)),
      policy(map_of(1, n.shape.actions)),
      place(map_of(1, std::max(n.policy.outputs, n.beyond.outputs))),
      value(map_of(1, n.value.outputs)),
      quanta(std::max({x.at.size(), squeezed.at.size(), pooled.at.size(), hidden.at.size()})) {
    const auto cells = static_cast<std::size_t>((n.shape.rows + 2) * (n.shape.cols + 2)), cell = static_cast<std::size_t>(kGroup * x.stride);
    if (std::any_of(n.blocks.begin(), n.blocks.end(), [](const Layer& layer) { return layer.winograd; })) {
        framed.resize(cells * cell / 2);
        at_points.resize(kPoints * cell);
        point_sums.resize(kPoints * kGroup * 4 * kLanes);
    }
    for (int plane = 0; plane < n.shape.planes; ++plane)
        for (int square = 0; square < n.shape.squares(); ++square)
            at_bit.push_back(n.shape.board ? static_cast<std::ptrdiff_t>(square) * kGroup * input_stride + plane : plane * n.shape.squares() + square);
}

void forward(const Network& n, Workspace& space, const std::uint8_t* packed, std::size_t count, Half* logits, Half* values) {
    const Shape& shape = n.shape;
    for (std::size_t done = 0; done < count; done += kGroup) {
        const int now = static_cast<int>(std::min<std::size_t>(kGroup, count - done));
        unpack(shape, packed + done * static_cast<std::size_t>(shape.packed_size()), now, space);
        space.worth.fill(kInputWorth);
        run_stem(n, space, now);
        for (std::size_t b = 0; b + 1 < n.blocks.size(); b += 2) {
            run_block_layer(shape, n.blocks[b], space.x, space.h, nullptr, space, now);
            run_block_layer(shape, n.blocks[b + 1], space.h, space.x, &space.x, space, now);
        }
        shape.board ? board_heads(n, space, now) : dense_heads(n, space, now);
        for (int p = 0; p < now; ++p, logits += shape.actions, values += shape.values)
            write(n, space.policy.at.data() + p * space.policy.stride, space.value.at.data() + p * space.value.stride, logits, values);
    }
}

}  // namespace azq::nn
