/// The forward pass of azq.nets.residual.ResNet for small boards, on CPUs that multiply bfloat16 (AVX512-BF16) and bytes (AVX512-VNNI),
/// and on those that have but AVX2: compiled once for each, with the vectors of avx512.hpp or of avx2.hpp.
///
/// Why it exists: a general convolution pays for zero padding, for layout changes between layers and for kernels that are not made
/// for 6 x 7 cells. Here a group of positions goes through the whole network while its activations stay in the L2 cache, and a cell
/// at the rim multiplies only the taps that lie on the board.
///
/// Numbers: weights and activations in bfloat16 (AVX2: float32), sums in float32. Every position is computed alone, in one order: its
/// evaluation does not depend on the batch it comes in. Where it is `quantised`, the blocks' convolutions, nearly all of the work,
/// multiply whole numbers, bytes (AVX2: 16 bits): weights have one scale an output, activations one a position, taken from the
/// position's own largest activation, so that nothing has to be calibrated (dynamic quantisation); the residual stream, the stem and
/// the heads stay as they are.
///
/// Activations of a group: [cell][position][channel]. Weights of a layer: [output tile][tap][word][output], where a word of 32 bits is
/// as many neighbouring input channels as fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace azq::nn {

/// Positions that go through the network together: a multiple of every tile height in the kernel.
inline constexpr int kGroup = 24;
/// Outputs of one vector register, and channels of one word.
#if defined(AZQ_NN_AVX2)
inline constexpr int kLanes = 8, kFullAWord = 1, kFixedAWord = 2;
#else
inline constexpr int kLanes = 16, kFullAWord = 2, kFixedAWord = 4;
#endif

struct Shape {
    int planes, rows, cols, actions, values, blocks, channels, policy_channels, value_channels, value_hidden;
    bool quantised = false;  // the blocks' convolutions multiply whole numbers
    int action_planes = 0;   // of global heads, boards of actions that each cell or column names one of; 0: flat heads
    bool by_column = false;  // actions name columns, of whose cells the mean is taken
    bool parity = false;     // the stem reads one more plane, of ones where an observation's bits are odd in number

    int inputs() const { return planes + parity; }
    int cells() const { return rows * cols; }
    int places() const { return by_column ? cols : cells(); }
    int beyond() const { return action_planes ? actions - action_planes * places() : 0; }  // actions that lie nowhere
    int packed_size() const { return (planes * cells() + 7) / 8; }
};

enum class Number { full, fixed };

/// A linear map over taps: y[o] = bias[o] + sum over taps t and inputs i of w[o, i, t] x[t][i].
struct Layer {
    int inputs = 0, outputs = 0, taps = 0;
    Number number = Number::full;
    std::vector<std::uint32_t> weights;
    std::vector<float> bias, scale;  // scale: of fixed weights, an output each

    int channels_a_word() const { return number == Number::fixed ? kFixedAWord : kFullAWord; }
    int words() const { return (inputs + channels_a_word() - 1) / channels_a_word(); }
    int vectors() const { return (outputs + kLanes - 1) / kLanes; }
};

/// Packs float32 weights (outputs, inputs, taps) and bias (outputs) for the kernel.
Layer pack(const float* weights, const float* bias, int outputs, int inputs, int taps, Number number = Number::full);

/// Flat heads read all squeezed cells at once. Global ones read each cell by itself for the policy and, for actions that lie nowhere and
/// the value, the mean and the largest of each channel.
struct Network {
    Shape shape;
    Layer stem, squeeze, policy, beyond, value_hidden, value;
    std::vector<Layer> convolutions;  // two a block
};

/// Evaluates `count` packed observations (count, P); writes float16 logits (count, A) and values (count, V).
void forward(const Network& network, const std::uint8_t* packed, std::size_t count, std::uint16_t* logits, std::uint16_t* values);

}  // namespace azq::nn
