/// The Python face of the native forward pass: `azq._nn`.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(AZQ_NN_KERNEL)
#include "cpu.hpp"
#include "resnet.hpp"
#endif

namespace nb = nanobind;

#if defined(AZQ_NN_KERNEL)
namespace {

using azq::nn::Number;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Halves = nb::ndarray<std::uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Batches are cut into pieces of whole groups, so that threads share the work evenly.
constexpr std::size_t kPiece = 2 * azq::nn::kGroup;

class ResNet {
public:
    explicit ResNet(azq::nn::Shape shape) { network_.shape = shape; }

    /// Weight and bias of the stem, of every convolution, of squeeze, policy, what is beyond its board, value_hidden and value, as
    /// azq.inference.device.native orders them.
    void load(const std::vector<Floats>& tensors) {
        const azq::nn::Shape& s = network_.shape;
        azq::nn::Network fresh{s, {}, {}, {}, {}, {}, {}, {}};
        std::size_t next = 0;
        const auto take = [&](int outputs, int inputs, int taps, Number number = Number::full) {
            if (next + 2 > tensors.size()) throw std::invalid_argument("too few tensors");
            const Floats &weight = tensors[next], &bias = tensors[next + 1];
            next += 2;
            if (weight.size() != static_cast<std::size_t>(outputs) * static_cast<std::size_t>(inputs * taps) ||
                bias.size() != static_cast<std::size_t>(outputs))
                throw std::invalid_argument("a tensor has another size than the network's");
            return azq::nn::pack(weight.data(), bias.data(), outputs, inputs, taps, number);
        };
        const Number number = s.quantised ? Number::fixed : Number::full;
        fresh.stem = take(s.channels, s.inputs(), 9);
        for (int i = 0; i < 2 * s.blocks; ++i) fresh.convolutions.push_back(take(s.channels, s.channels, 9, number));
        fresh.squeeze = take(s.policy_channels + s.value_channels, s.channels, 1);
        fresh.policy = s.action_planes ? take(s.action_planes, s.policy_channels, 1) : take(s.actions, s.policy_channels, s.cells());
        if (s.beyond()) fresh.beyond = take(s.beyond(), s.policy_channels, 2);
        fresh.value_hidden = take(s.value_hidden, s.value_channels, s.action_planes ? 2 : s.cells());
        fresh.value = take(s.values, s.value_hidden, 1);
        if (next != tensors.size()) throw std::invalid_argument("too many tensors");
        network_ = std::move(fresh);
        loaded_ = true;
    }

    void forward(Bytes packed, Halves logits, Halves values, int threads) const {
        const azq::nn::Shape& s = network_.shape;
        const std::size_t count = packed.shape(0), width = packed.shape(1);
        const auto actions = static_cast<std::size_t>(s.actions), seats = static_cast<std::size_t>(s.values);
        if (!loaded_) throw std::runtime_error("no weights loaded");
        if (width != static_cast<std::size_t>(s.packed_size()) || logits.shape(0) != count || logits.shape(1) != actions ||
            values.shape(0) != count || values.shape(1) != seats)
            throw std::invalid_argument("arrays of other shapes than the network's");
        const nb::gil_scoped_release released;
        std::atomic<std::size_t> next{0};
        const auto work = [&] {
            for (std::size_t at = next.fetch_add(kPiece); at < count; at = next.fetch_add(kPiece))
                azq::nn::forward(network_, packed.data() + at * width, std::min(kPiece, count - at), logits.data() + at * actions,
                                 values.data() + at * seats);
        };
        std::vector<std::jthread> helpers;
        const auto pieces = static_cast<int>((count + kPiece - 1) / kPiece);
        for (int i = 1; i < std::min(threads, pieces); ++i) helpers.emplace_back(work);
        work();
    }

private:
    azq::nn::Network network_;
    bool loaded_ = false;
};

}  // namespace
#endif

NB_MODULE(AZQ_NN_MODULE, m) {
#if defined(AZQ_NN_KERNEL)
#if defined(AZQ_NN_AVX2)
    m.def("supported", &azq::nn::has_avx2);
#else
    m.def("supported", &azq::nn::has_avx512);
#endif
    nb::class_<ResNet>(m, "ResNet")
        .def(
            "__init__",
            [](ResNet* self, int planes, int rows, int cols, int actions, int values, int blocks, int channels, int policy_channels,
               int value_channels, int value_hidden, bool quantised, int action_planes, bool by_column, bool parity) {
                const azq::nn::Shape shape{planes,          rows,           cols,         actions, values,        blocks,   channels,
                                           policy_channels, value_channels, value_hidden, quantised, action_planes, by_column, parity};
                if (planes < 1 || rows < 1 || cols < 1 || rows * cols > 256 || actions < 1 || values < 1 || channels < 1)
                    throw std::invalid_argument("a network of this shape is not supported");
                if (action_planes < 0 || action_planes > 256 || shape.beyond() < 0) throw std::invalid_argument("fewer actions than the board names");
                if (policy_channels % 2 || value_channels % 2) throw std::invalid_argument("head channels must be even");
                new (self) ResNet(shape);
            },
            nb::kw_only(), nb::arg("planes"), nb::arg("rows"), nb::arg("cols"), nb::arg("actions"), nb::arg("values"), nb::arg("blocks"),
            nb::arg("channels"), nb::arg("policy_channels"), nb::arg("value_channels"), nb::arg("value_hidden"), nb::arg("quantised") = false,
            nb::arg("action_planes") = 0, nb::arg("by_column") = false, nb::arg("parity") = false)
        .def("load", &ResNet::load)
        .def("forward", &ResNet::forward, nb::arg("packed"), nb::arg("logits"), nb::arg("values"), nb::arg("threads"));
#else
    m.def("supported", [] { return false; });
#endif
}
