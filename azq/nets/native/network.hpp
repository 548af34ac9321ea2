/// The forward pass of azq.nets' residual networks and perceptrons in whole numbers: the same bits on every CPU and in every browser.
///
/// Why it exists: a general convolution pays for zero padding, for layout changes between layers and for kernels that are not made
/// for 6 x 7 cells. Here a group of positions goes through the whole network while its activations stay in the L2 cache, and a cell
/// at the rim multiplies only the taps that lie on the board.
///
/// Numbers: every layer multiplies whole numbers and sums them exactly: y = sum * (scale * worth) + bias, in float32 without contraction,
/// then the residual and relu. Weights have one scale an output; activations one a position, what 1 is worth, taken from the position's
/// own largest activation, so that nothing has to be calibrated. The blocks of residual networks, nearly all of their work, multiply
/// bytes (winograd.hpp where a CPU has no products of bytes); other layers 16 bits, of which activations have 12 and weights 11 where sums
/// have room. Outputs are rounded to float16 by azq's own exp and rounding (azq/math.hpp). A position's evaluation depends on no other.
///
/// Activations of a group: [cell][position][channel]. Weights of a layer: [output tile][tap][word][output], where a word of 32 bits is
/// as many neighbouring input channels as fit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "azq/math.hpp"

namespace azq::nn {

/// Positions that go through the network together: a multiple of every tile height in the kernel.
inline constexpr int kGroup = 24;

/// As the description of a network has it (azq/nets/whole.py), number for number.
struct Shape {
    std::int32_t planes, rows, cols, scalars, actions, values, outcomes, blocks, channels;
    std::int32_t board;  // 1: convolutions over the board, and heads that squeeze; 0: a perceptron, a board of one cell with all inputs
    std::int32_t policy_channels, value_channels, value_hidden;
    std::int32_t action_planes;  // of global heads, boards of actions that each cell or column names one of; 0: flat heads
    std::int32_t by_column;      // 1: actions name columns, of whose cells the mean is taken
    std::int32_t parity;         // 1: the stem reads one more plane, of ones where an observation's bits are odd in number

    int squares() const { return rows * cols; }
    int cells() const { return board ? squares() : 1; }
    int inputs() const { return board ? planes + parity : planes * squares() + scalars; }
    int taps() const { return board ? 9 : 1; }
    int places() const { return by_column ? cols : squares(); }
    int beyond() const { return action_planes ? actions - action_planes * places() : 0; }  // actions that lie nowhere
    int plane_bytes() const { return (planes * squares() + 7) / 8; }
    int packed_size() const { return plane_bytes() + scalars; }
    int value_outputs() const { return outcomes ? outcomes : values; }
};

/// A linear map over taps: y[o] = bias[o] + sum over taps t and inputs i of w[o, i, t] x[t][i].
struct Layer {
    int inputs = 0, outputs = 0, taps = 0;
    bool bytes = false, winograd = false;  // winograd: `taps` are points of a tile (winograd.hpp)
    int most = 0;  // the largest whole activation that it takes
    std::vector<std::int32_t> weights;
    std::vector<float> scale, bias;

    int words() const;
    int vectors() const;
};

/// Flat heads read all squeezed cells at once. Global ones read each cell by itself for the policy and, for actions that lie nowhere and
/// the value, the mean and the largest of each channel. Those of a perceptron read its last layer.
struct Network {
    Shape shape{};
    std::vector<float> outcome_weights;  // the value is the bias and the sum of these times the outcomes' probabilities
    float outcome_bias = 0;
    Layer stem, squeeze, policy, beyond, value_hidden, value;
    std::vector<Layer> blocks;  // two layers each
};

/// Reads a description into a network; returns what is wrong with it, "" where nothing is.
std::string read_network(const std::byte* data, std::size_t size, Network& network);

/// Numbers at each cell: [cell][position][channel].
struct Map {
    int stride = 0;
    std::vector<float> at;
    std::vector<float> largest;  // [position][lane], of what was stored last
};

/// Buffers of one group, zeroed once: whatever lies in positions beyond the count stays finite or is never read.
struct Workspace {
    explicit Workspace(const Network& network);

    int input_stride;
    std::vector<std::int16_t> input;
    Map x, h, squeezed, pooled, hidden, policy, place, value;  // place: logits of one cell, or of actions that lie nowhere
    std::vector<std::int32_t> quanta, framed;                  // one of them in whole numbers; within a frame of zeros
    std::vector<std::int16_t> at_points;                       // activations of a tile at its points (winograd.hpp)
    std::vector<std::uint32_t> point_sums;                     // and what they sum to
    std::array<float, kGroup> worth{};                         // of a position's whole 1
    std::vector<std::ptrdiff_t> at_bit;  // where an observation's bit goes in `input`, from its position's first channel on
};

/// Evaluates `count` packed observations (count, P); writes float16 logits (count, A) and values (count, V).
void forward(const Network& network, Workspace& space, const std::uint8_t* packed, std::size_t count, Half* logits, Half* values);

}  // namespace azq::nn
