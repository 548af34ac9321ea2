/// Networks in whole numbers (azq/nets/native), as JavaScript sees them.
#include "network.hpp"

#include "exchange.hpp"

namespace azq::wasm {
namespace {

struct Evaluator {
    nn::Network network;
    nn::Workspace space{network};
    std::vector<Half> halves{};
};

/// The network that the input describes; null and why it is none.
AZQ_EXPORT(azq_network) Evaluator* network() {
    Exchange& all = exchange();
    nn::Network network;
    all.answer(nn::read_network(all.input.data(), all.input.size(), network));
    return all.output.empty() ? new Evaluator{std::move(network)} : nullptr;
}

AZQ_EXPORT(azq_free_network) void free_network(Evaluator* self) { delete self; }

/// As f32, as they count: logits (L, A), then values (L, V), of the packed observations (L, P) in the input.
AZQ_EXPORT(azq_evaluate) int evaluate(Evaluator& self, std::size_t leaves) {
    Exchange& all = exchange();
    const nn::Shape& shape = self.network.shape;
    const auto row = static_cast<std::size_t>(shape.packed_size());
    if (all.input.size() != leaves * row) return all.refuse("the network takes observations of " + std::to_string(row) + " bytes, not another game's");
    const std::size_t logits = leaves * static_cast<std::size_t>(shape.actions);
    self.halves.resize(logits + leaves * static_cast<std::size_t>(shape.values));
    const auto* packed = reinterpret_cast<const std::uint8_t*>(all.input.data());
    nn::forward(self.network, self.space, packed, leaves, self.halves.data(), self.halves.data() + logits);
    all.output.resize(self.halves.size() * sizeof(float));
    for (std::size_t i = 0; i < self.halves.size(); ++i) {
        const float number = to_float(self.halves[i]);
        std::memcpy(all.output.data() + i * sizeof number, &number, sizeof number);
    }
    return 0;
}

}  // namespace
}  // namespace azq::wasm
