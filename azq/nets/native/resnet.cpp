#include "resnet.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernel.hpp"

namespace azq::nn {
namespace {

/// Buffers of one group, zeroed once: whatever lies in positions beyond the count stays finite or is never read.
struct Workspace {
    explicit Workspace(const Network& n)
        : input_stride((n.shape.inputs() + kFullAWord - 1) / kFullAWord * kFullAWord),
          stride(n.squeeze.inputs ? (n.shape.channels + kLanes - 1) / kLanes * kLanes : 0),
          squeezed_stride(n.squeeze.vectors() * kLanes),
          hidden_stride(n.value_hidden.vectors() * kLanes),
          input(size(n, input_stride)),
          x(size(n, stride)),
          h(size(n, stride)),
          squeezed(size(n, squeezed_stride)),
          hidden(static_cast<std::size_t>(kGroup * hidden_stride)),
          whole(n.shape.quantised ? size(n, stride) : 0),
          policy_stride(n.shape.action_planes ? n.shape.actions : n.policy.vectors() * kLanes),
          pooled(n.shape.action_planes ? static_cast<std::size_t>(kGroup * 2 * squeezed_stride) : 0),
          spread(static_cast<std::size_t>(kGroup * std::max(n.policy.vectors(), n.beyond.vectors()) * kLanes)),
          policy(static_cast<std::size_t>(kGroup * policy_stride)),
          value(static_cast<std::size_t>(kGroup * n.value.vectors() * kLanes)) {
        for (int plane = 0; plane < n.shape.planes; ++plane)
            for (int cell = 0; cell < n.shape.cells(); ++cell) at_bit.push_back(static_cast<std::ptrdiff_t>(cell) * kGroup * input_stride + plane);
    }

    static std::size_t size(const Network& n, int channels) {
        return static_cast<std::size_t>(n.shape.cells()) * kGroup * static_cast<std::size_t>(channels);
    }

    int input_stride, stride, squeezed_stride, hidden_stride;
    std::vector<Activation> input, x, h, squeezed, hidden;
    std::vector<Quantum> whole;  // x or h, quantised
    int policy_stride;
    std::vector<Activation> pooled;
    std::vector<float> spread, policy, value;  // spread: logits of one cell, or of actions that lie nowhere
    std::vector<std::ptrdiff_t> at_bit;  // where an observation's bit goes in `input`, from its position's first channel on
    float scales[kGroup] = {};  // a position's whole 1 is worth this much
};

/// Writes a one for every bit that is set, plane after plane as it is packed, and with `parity` one everywhere in the last plane.
void unpack(const Shape& shape, const std::uint8_t* packed, int count, Workspace& space) {
    std::fill(space.input.begin(), space.input.end(), Activation{0});
    for (int p = 0; p < count; ++p, packed += shape.packed_size()) {
        Activation* input = space.input.data() + static_cast<std::ptrdiff_t>(p) * space.input_stride;
        bool odd = false;
        for (int byte = 0; byte < shape.packed_size(); ++byte)
            for (unsigned bits = packed[byte]; bits; bits &= bits - 1) {
                const auto bit = static_cast<std::size_t>(byte * 8 + std::countr_zero(bits));
                if (bit >= space.at_bit.size()) continue;
                input[space.at_bit[bit]] = kOne;
                odd = !odd;
            }
        if (!shape.parity || !odd) continue;
        for (int cell = 0; cell < shape.cells(); ++cell)
            input[static_cast<std::ptrdiff_t>(cell) * kGroup * space.input_stride + shape.planes] = kOne;
    }
}

/// Rounds one position's activations (none negative) to whole numbers, of which the largest is `most`; returns what 1 is worth.
float quantise(const Activation* in, int cells, int stride, int most, Quantum* out) {
    Floats found = zeros();
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(kGroup) * stride;
    for (int cell = 0; cell < cells; ++cell)
        for (int c = 0; c < stride; c += kLanes) found = larger(found, load(in + cell * next + c));
    const float largest = largest_of(found), whole = static_cast<float>(most);
    const Floats factor = spread(largest > 0 ? whole / largest : 0.0F);
    for (int cell = 0; cell < cells; ++cell)
        for (int c = 0; c < stride; c += kLanes) store_rounded(out + cell * next + c, mul(load(in + cell * next + c), factor));
    return largest / whole;
}

/// Calls `at(cell, taps)` for every cell with the nine taps around it; those off the board are null.
template <class X, class At>
void each_cell(const Shape& shape, const X* in, int in_stride, const At& at) {
    for (int row = 0; row < shape.rows; ++row)
        for (int col = 0; col < shape.cols; ++col) {
            const X* taps[9];
            for (int t = 0; t < 9; ++t) {
                const int r = row + t / 3 - 1, c = col + t % 3 - 1;
                const bool inside = r >= 0 && r < shape.rows && c >= 0 && c < shape.cols;
                taps[t] = inside ? in + static_cast<std::ptrdiff_t>(r * shape.cols + c) * kGroup * in_stride : nullptr;
            }
            at(row * shape.cols + col, taps);
        }
}

/// 3x3, relu(conv(in) + residual), all cells of a group.
void convolve(const Shape& shape, const Layer& layer, const Activation* in, int in_stride, Activation* out, const Activation* residual, Workspace& space, int count) {
    const auto store = [&](int cell, int p, int v) {
        const std::ptrdiff_t at = (static_cast<std::ptrdiff_t>(cell) * kGroup + p) * space.stride + v * kLanes;
        return StoreRelu{out + at, residual ? residual + at : nullptr, space.stride};
    };
    if (layer.number == Number::full) {
        each_cell(shape, in, in_stride, [&](int cell, const Activation* const* taps) {
            run_layer<Full>(layer, taps, in_stride, count, [&](int p, int v) { return store(cell, p, v); });
        });
        return;
    }
    const int most = Fixed::most_activation(layer.taps * layer.inputs);
    for (int p = 0; p < count; ++p)
        space.scales[p] = quantise(in + static_cast<std::ptrdiff_t>(p) * in_stride, shape.cells(), in_stride, most,
                                   space.whole.data() + static_cast<std::ptrdiff_t>(p) * in_stride);
    each_cell(shape, space.whole.data(), in_stride, [&](int cell, const Quantum* const* taps) {
        run_layer<Fixed>(layer, taps, in_stride, count, [&](int p, int v) {
            return Rescale{layer.scale.data() + v * kLanes, layer.bias.data() + v * kLanes, space.scales + p, store(cell, p, v)};
        });
    });
}

/// Taps of a dense layer over all cells, whose channels begin at `first`.
std::vector<const Activation*> all_cells(const Shape& shape, const Workspace& space, int first) {
    std::vector<const Activation*> taps(static_cast<std::size_t>(shape.cells()));
    for (int cell = 0; cell < shape.cells(); ++cell)
        taps[static_cast<std::size_t>(cell)] = space.squeezed.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed_stride + first;
    return taps;
}

/// Mean and largest of each squeezed channel over all cells: [position][means, then the largest].
void pool(const Shape& shape, Workspace& space, int count) {
    const int stride = space.squeezed_stride;
    const Floats share = spread(1.0F / static_cast<float>(shape.cells()));
    for (int p = 0; p < count; ++p)
        for (int c = 0; c < stride; c += kLanes) {
            Floats sum = zeros(), most = zeros();  // none is negative
            const Activation* in = space.squeezed.data() + static_cast<std::ptrdiff_t>(p) * stride + c;
            for (int cell = 0; cell < shape.cells(); ++cell, in += static_cast<std::ptrdiff_t>(kGroup) * stride) {
                const Floats x = load(in);
                sum = add(sum, x);
                most = larger(most, x);
            }
            const StoreRelu store{space.pooled.data() + static_cast<std::ptrdiff_t>(p) * 2 * stride + c, nullptr, 0};
            store(0, 0, mul(sum, share));
            store(0, stride / kLanes, most);
        }
}

/// The two taps of a layer that reads pooled channels from `first` on.
std::array<const Activation*, 2> pooled_taps(const Workspace& space, int first) {
    return {space.pooled.data() + first, space.pooled.data() + space.squeezed_stride + first};
}

/// Evaluates a layer of the policy and hands on its outputs: `take(position, output, logit)`.
template <class Take>
void spread_logits(const Layer& layer, const Activation* const* taps, int stride, Workspace& space, int count, const Take& take) {
    const int out_stride = layer.vectors() * kLanes;
    run_layer<Full>(layer, taps, stride, count, [&](int p, int v) {
        return StoreFloat{space.spread.data() + p * out_stride + v * kLanes, out_stride};
    });
    for (int p = 0; p < count; ++p)
        for (int o = 0; o < layer.outputs; ++o) take(p, o, space.spread[static_cast<std::size_t>(p * out_stride + o)]);
}

void global_policy(const Network& n, Workspace& space, int count) {
    const Shape& shape = n.shape;
    const auto logit = [&](int p, int action) -> float& { return space.policy[static_cast<std::size_t>(p * space.policy_stride + action)]; };
    const float share = shape.by_column ? 1.0F / static_cast<float>(shape.rows) : 1.0F;
    std::fill(space.policy.begin(), space.policy.end(), 0.0F);
    for (int cell = 0; cell < shape.cells(); ++cell) {
        const Activation* tap = space.squeezed.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed_stride;
        const int place = shape.by_column ? cell % shape.cols : cell;
        spread_logits(n.policy, &tap, space.squeezed_stride, space, count,
                      [&](int p, int plane, float x) { logit(p, plane * shape.places() + place) += share * x; });
    }
    if (shape.beyond() == 0) return;
    spread_logits(n.beyond, pooled_taps(space, 0).data(), 2 * space.squeezed_stride, space, count,
                  [&](int p, int action, float x) { logit(p, shape.action_planes * shape.places() + action) = x; });
}

void heads(const Network& n, Workspace& space, int count) {
    const Shape& shape = n.shape;
    for (int cell = 0; cell < shape.cells(); ++cell) {
        const Activation* tap = space.x.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.stride;
        Activation* out = space.squeezed.data() + static_cast<std::ptrdiff_t>(cell) * kGroup * space.squeezed_stride;
        run_layer<Full>(n.squeeze, &tap, space.stride, count, [&](int p, int v) {
            return StoreRelu{out + static_cast<std::ptrdiff_t>(p) * space.squeezed_stride + v * kLanes, nullptr, space.squeezed_stride};
        });
    }
    const int value_stride = n.value.vectors() * kLanes;
    const auto hidden = [&](int p, int v) {
        return StoreRelu{space.hidden.data() + p * space.hidden_stride + v * kLanes, nullptr, space.hidden_stride};
    };
    if (shape.action_planes) {
        pool(shape, space, count);
        global_policy(n, space, count);
        run_layer<Full>(n.value_hidden, pooled_taps(space, shape.policy_channels).data(), 2 * space.squeezed_stride, count, hidden);
    } else {
        run_layer<Full>(n.policy, all_cells(shape, space, 0).data(), space.squeezed_stride, count, [&](int p, int v) {
            return StoreFloat{space.policy.data() + p * space.policy_stride + v * kLanes, space.policy_stride};
        });
        run_layer<Full>(n.value_hidden, all_cells(shape, space, shape.policy_channels).data(), space.squeezed_stride, count, hidden);
    }
    const Activation* tap = space.hidden.data();
    run_layer<Full>(n.value, &tap, space.hidden_stride, count, [&](int p, int v) {
        return StoreFloat{space.value.data() + p * value_stride + v * kLanes, value_stride};
    });
}

/// What 1 of a whole weight is worth, an output each.
std::vector<float> scales_of(const float* weights, int outputs, int inputs, std::size_t padded) {
    std::vector<float> scales(padded, 0.0F);
    for (int o = 0; o < outputs; ++o) {
        float largest = 0;
        for (int i = 0; i < inputs; ++i) largest = std::max(largest, std::abs(weights[o * inputs + i]));
        scales[static_cast<std::size_t>(o)] = largest / Fixed::kMostWeight;
    }
    return scales;
}

/// The weights of one output for the neighbouring channels of one word.
template <class At>
std::uint32_t pack_word(const Layer& layer, int output, int word, int tap, const At& at) {
    std::uint32_t bits = 0;
    const int channels = layer.channels_a_word(), width = 32 / channels;
    const std::uint32_t mask = width == 32 ? ~0U : (1U << width) - 1U;
    for (int c = 0; c < channels; ++c) {
        const float weight = at(output, word * channels + c, tap);
        std::uint32_t one = 0;
        if (layer.number == Number::full) {
            one = Full::bits(weight);
        } else if (const float scale = layer.scale[static_cast<std::size_t>(output)]; scale > 0) {
            one = static_cast<std::uint32_t>(std::lrint(weight / scale)) & mask;
        }
        bits |= one << (c * width);
    }
    return bits;
}

std::uint16_t to_half(float x) { return static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }

}  // namespace

Layer pack(const float* weights, const float* bias, int outputs, int inputs, int taps, Number number) {
    Layer layer{inputs, outputs, taps, number, {}, {}, {}};
    const auto padded = static_cast<std::size_t>(layer.vectors() * kLanes);
    layer.bias.assign(padded, 0.0F);
    std::copy(bias, bias + outputs, layer.bias.begin());
    if (number == Number::fixed) layer.scale = scales_of(weights, outputs, inputs * taps, padded);
    layer.weights.reserve(padded * static_cast<std::size_t>(taps * layer.words()));
    const auto at = [&](int o, int i, int t) { return o < outputs && i < inputs ? weights[(o * inputs + i) * taps + t] : 0.0F; };
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        for (int t = 0; t < taps; ++t)
            for (int word = 0; word < layer.words(); ++word)
                for (int o = done * kLanes; o < (done + vectors) * kLanes; ++o) layer.weights.push_back(pack_word(layer, o, word, t, at));
        done += vectors;
    }
    return layer;
}

void forward(const Network& n, const std::uint8_t* packed, std::size_t count, std::uint16_t* logits, std::uint16_t* values) {
    const Shape& shape = n.shape;
    Workspace space(n);
    const int value_stride = n.value.vectors() * kLanes;
    for (std::size_t done = 0; done < count; done += kGroup) {
        const int now = static_cast<int>(std::min<std::size_t>(kGroup, count - done));
        unpack(shape, packed + done * static_cast<std::size_t>(shape.packed_size()), now, space);
        convolve(shape, n.stem, space.input.data(), space.input_stride, space.x.data(), nullptr, space, now);
        for (std::size_t b = 0; b + 1 < n.convolutions.size(); b += 2) {
            convolve(shape, n.convolutions[b], space.x.data(), space.stride, space.h.data(), nullptr, space, now);
            convolve(shape, n.convolutions[b + 1], space.h.data(), space.stride, space.x.data(), space.x.data(), space, now);
        }
        heads(n, space, now);
        for (int p = 0; p < now; ++p) {
            for (int a = 0; a < shape.actions; ++a) *logits++ = to_half(space.policy[static_cast<std::size_t>(p * space.policy_stride + a)]);
            for (int v = 0; v < shape.values; ++v) *values++ = to_half(std::tanh(space.value[static_cast<std::size_t>(p * value_stride + v)]));
        }
    }
}

}  // namespace azq::nn
