/// The Python face of the native forward pass: `azq._nn` and its likes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "network.hpp"
#include "peak.hpp"
#if defined(AZQ_NN_AVX512) || defined(AZQ_NN_AVX2)
#include "cpu.hpp"
#endif

namespace nb = nanobind;

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Halves = nb::ndarray<std::uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Batches are cut into pieces of whole groups, so that threads share the work evenly.
constexpr std::size_t kPiece = 2 * azq::nn::kGroup;

class Network {
public:
    explicit Network(const nb::bytes& description) {
        const std::string broken = azq::nn::read_network(static_cast<const std::byte*>(description.data()), description.size(), network_);
        if (!broken.empty()) throw std::invalid_argument(broken);
    }

    void forward(Bytes packed, Halves logits, Halves values, int threads) const {
        const azq::nn::Shape& s = network_.shape;
        const std::size_t count = packed.shape(0), width = packed.shape(1);
        const auto actions = static_cast<std::size_t>(s.actions), seats = static_cast<std::size_t>(s.values);
        if (width != static_cast<std::size_t>(s.packed_size()) || logits.shape(0) != count || logits.shape(1) != actions ||
            values.shape(0) != count || values.shape(1) != seats)
            throw std::invalid_argument("arrays of other shapes than the network's");
        const nb::gil_scoped_release released;
        std::atomic<std::size_t> next{0};
        const auto work = [&] {
            azq::nn::Workspace space(network_);
            for (std::size_t at = next.fetch_add(kPiece); at < count; at = next.fetch_add(kPiece))
                azq::nn::forward(network_, space, packed.data() + at * width, std::min(kPiece, count - at),
                                 reinterpret_cast<azq::Half*>(logits.data() + at * actions), reinterpret_cast<azq::Half*>(values.data() + at * seats));
        };
        std::vector<std::jthread> others;
        const auto pieces = static_cast<int>((count + kPiece - 1) / kPiece);
        for (int i = 1; i < std::min(threads, pieces); ++i) others.emplace_back(work);
        work();
    }

private:
    azq::nn::Network network_;
};

}  // namespace

NB_MODULE(AZQ_NN_MODULE, m) {
#if defined(AZQ_NN_AVX512)
    m.def("supported", &azq::nn::has_avx512);
#elif defined(AZQ_NN_AVX2)
    m.def("supported", &azq::nn::has_avx2);
#else
    m.def("supported", [] { return true; });
#endif
    m.def("multiply", &azq::nn::multiply, nb::arg("rounds"));
    nb::class_<Network>(m, "Network")
        .def(nb::init<const nb::bytes&>(), nb::arg("description"))
        .def("forward", &Network::forward, nb::arg("packed"), nb::arg("logits"), nb::arg("values"), nb::arg("threads"));
}
