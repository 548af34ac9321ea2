/// Reading a network's description: its shape, then layer after layer whole weights, scales and bias, as azq/nets/whole.py writes them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "winograd.hpp"

namespace azq::nn {
namespace {

constexpr char kMagic[] = {'a', 'z', 'q', '1'};
constexpr int kMostCells = 256, kMostSide = 1 << 16;
constexpr int kByte = 127, kActivation = 255;             // the largest of bytes
constexpr int kWord = 1023, kWordActivation = 4095;       // of 16 bits
constexpr int kInputWord = 32767, kInputActivation = 128;  // of the first layer
constexpr std::int64_t kRoom = std::numeric_limits<std::int32_t>::max();

/// Takes a description apart from its beginning on; `broken` where it ends too early or says what cannot be.
struct Reader {
    const std::byte* at;
    std::size_t left;
    std::string broken;

    template <class T>
    std::vector<T> take(std::size_t count) {
        std::vector<T> found(count);
        if (left < count * sizeof(T)) {
            broken = "ends too early";
            return found;
        }
        std::memcpy(found.data(), at, count * sizeof(T));
        at += count * sizeof(T);
        left -= count * sizeof(T);
        return found;
    }

    std::vector<float> numbers(int count) {
        auto found = take<float>(static_cast<std::size_t>(count));
        if (!std::all_of(found.begin(), found.end(), [](float x) { return std::isfinite(x); })) broken = "holds a number that is not finite";
        return found;
    }
};

/// Whole weights (outputs, inputs, taps) into words as the kernel reads them.
template <class Weight>
void pack(Layer& layer, const std::vector<Weight>& weights) {
    const int a_word = layer.bytes ? kAWord<Bytes> : kAWord<Words>, width = 32 / a_word;
    const std::uint32_t mask = (1U << width) - 1U;
    const auto at = [&](int o, int i, int t) -> std::uint32_t {
        if (o >= layer.outputs || i >= layer.inputs) return 0;
        return static_cast<std::uint32_t>(weights[static_cast<std::size_t>((o * layer.inputs + i) * layer.taps + t)]) & mask;
    };
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        for (int t = 0; t < layer.taps; ++t)
            for (int word = 0; word < layer.words(); ++word)
                for (int o = done * kLanes; o < (done + vectors) * kLanes; ++o) {
                    std::uint32_t bits = 0;
                    for (int c = 0; c < a_word; ++c) bits |= at(o, word * a_word + c, t) << (c * width);
                    layer.weights.push_back(static_cast<std::int32_t>(bits));
                }
        done += vectors;
    }
}

/// Whether no output's sum can reach the bits that the way back from points shifts out.
bool spares_bits(const Layer& layer, const std::vector<std::int8_t>& weights) {
    const std::size_t each = static_cast<std::size_t>(layer.inputs * layer.taps);
    for (std::size_t first = 0; first < weights.size(); first += each) {
        std::int64_t sum = 0;
        for (std::size_t i = first; i < first + each; ++i) sum += std::abs(weights[i]);
        if (sum * kActivation > kRoom >> kSpareBits) return false;
    }
    return true;
}

template <class Weight>
void take_weights(Reader& from, Layer& layer, std::int64_t largest) {
    const auto weights = from.take<Weight>(static_cast<std::size_t>(layer.outputs) * static_cast<std::size_t>(layer.inputs * layer.taps));
    from.take<std::byte>((4 - weights.size() * sizeof(Weight) % 4) % 4);
    const bool overflows = std::any_of(weights.begin(), weights.end(), [&](Weight w) { return w > largest || w < -largest; });
    if (overflows) from.broken = "holds a weight for which its sums have no room";
    if (!from.broken.empty()) return;
    if constexpr (sizeof(Weight) == 1) {
        layer.winograd = layer.winograd && spares_bits(layer, weights);
        if (layer.winograd) {
            layer.taps = kPoints;
            layer.bytes = false;
            return pack(layer, weights_at_points(weights));
        }
    }
    pack(layer, weights);
}

Layer take_layer(Reader& from, int outputs, int inputs, int taps, bool bytes = false, bool first = false, bool winograd = false) {
    Layer layer{inputs, outputs, taps, bytes, winograd, 0, {}, {}, {}};
    const std::int64_t products = static_cast<std::int64_t>(inputs) * taps;
    if (!from.broken.empty()) return layer;
    if (bytes && products * kByte * kActivation > kRoom) from.broken = "has a layer whose sums have no room";
    if (bytes) {
        layer.most = kActivation;
        take_weights<std::int8_t>(from, layer, kByte);
    } else {
        layer.most = first ? kInputActivation : static_cast<int>(std::min<std::int64_t>(kWordActivation, kRoom / (products * kWord)));
        take_weights<std::int16_t>(from, layer, first ? std::min<std::int64_t>(kInputWord, kRoom / (products * kInputActivation)) : kWord);
    }
    layer.scale = from.numbers(outputs);
    layer.bias = from.numbers(outputs);
    for (auto* each : {&layer.scale, &layer.bias}) each->resize(static_cast<std::size_t>(layer.vectors() * kLanes), 0.0F);
    return layer;
}

bool fits(const Shape& s) {
    const auto between = [](std::initializer_list<int> numbers, int least, int most) {
        return std::all_of(numbers.begin(), numbers.end(), [&](int x) { return least <= x && x <= most; });
    };
    if (!between({s.actions, s.values, s.channels}, 1, kMostSide) || !between({s.planes, s.scalars, s.outcomes, s.blocks}, 0, kMostSide) ||
        !between({s.board, s.by_column, s.parity}, 0, 1) || !between({s.rows, s.cols, s.action_planes}, 0, kMostCells) ||
        !between({s.policy_channels, s.value_channels, s.value_hidden}, 0, kMostCells))
        return false;
    const bool board_fits = between({s.squares(), s.value_hidden}, 1, kMostCells) && s.policy_channels % 2 == 0 && s.value_channels % 2 == 0 &&
                            s.scalars == 0 && s.outcomes == 0;
    return between({s.inputs()}, 1, kMostSide) && s.beyond() >= 0 && (s.outcomes == 0 || s.values == 1) && (!s.board || board_fits);
}

}  // namespace

std::string read_network(const std::byte* data, std::size_t size, Network& network) {
    Reader from{data, size, ""};
    const std::vector<char> magic = from.take<char>(sizeof kMagic);
    if (!std::equal(magic.begin(), magic.end(), kMagic)) return "it is no network in whole numbers";
    const std::vector<Shape> shape = from.take<Shape>(1);
    const Shape& s = network.shape = shape[0];
    if (from.broken.empty() && !fits(s)) from.broken = "has a shape that cannot be";
    if (!from.broken.empty()) return "it " + from.broken;
    if (s.outcomes) {
        network.outcome_weights = from.numbers(s.outcomes);
        network.outcome_bias = from.numbers(1)[0];
    }
    const bool winograd = kWinograd && s.board && std::min(s.rows, s.cols) > 1;
    network.stem = take_layer(from, s.channels, s.inputs(), s.taps(), false, true);
    for (int i = 0; i < 2 * s.blocks && from.broken.empty(); ++i)
        network.blocks.push_back(take_layer(from, s.channels, s.channels, s.taps(), s.board == 1, false, winograd));
    if (s.board) {
        network.squeeze = take_layer(from, s.policy_channels + s.value_channels, s.channels, 1);
        network.policy = s.action_planes ? take_layer(from, s.action_planes, s.policy_channels, 1)
                                         : take_layer(from, s.actions, s.policy_channels, s.cells());
        if (s.beyond()) network.beyond = take_layer(from, s.beyond(), s.policy_channels, 2);
        network.value_hidden = take_layer(from, s.value_hidden, s.value_channels, s.action_planes ? 2 : s.cells());
    } else {
        network.policy = take_layer(from, s.actions, s.channels, 1);
    }
    network.value = take_layer(from, s.value_outputs(), s.board ? s.value_hidden : s.channels, 1);
    if (from.broken.empty() && from.left) from.broken = "goes on after its end";
    return from.broken.empty() ? "" : "it " + from.broken;
}

}  // namespace azq::nn
