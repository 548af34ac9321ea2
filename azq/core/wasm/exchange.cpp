#include "exchange.hpp"

namespace azq::wasm {

std::string illegal(int action, const AnyState& state, const std::string& where) {
    std::string legal;
    for (const int other : state.legal()) legal += (legal.empty() ? "legal actions: " : ", ") + std::to_string(other);
    return "action " + std::to_string(action) + " is illegal " + where + "; " + (legal.empty() ? "the game is over" : legal);
}

namespace {

enum class Kind : std::int32_t { kFlag, kInteger, kNumber, kText };

AZQ_EXPORT(azq_input) std::byte* input(std::size_t size) {
    exchange().input.resize(size);
    return exchange().input.data();
}

AZQ_EXPORT(azq_output) const std::byte* output() { return exchange().output.data(); }
AZQ_EXPORT(azq_output_size) std::size_t output_size() { return exchange().output.size(); }

/// Names a parameter of the next call that takes some; the input holds its name, and its value where that is a text.
AZQ_EXPORT(azq_param) void param(std::size_t name_size, Kind kind, double number) {
    Exchange& all = exchange();
    const std::string name = all.text(0, name_size);
    if (kind == Kind::kFlag) all.params[name] = number != 0.0;
    if (kind == Kind::kInteger) all.params[name] = static_cast<std::int64_t>(number);
    if (kind == Kind::kNumber) all.params[name] = number;
    if (kind == Kind::kText) all.params[name] = all.text(name_size, all.input.size() - name_size);
}

/// What was compiled, by the hash of all sources and flags (ops/wasm.py).
AZQ_EXPORT(azq_sources) void sources() { exchange().answer(AZQ_SOURCES); }

}  // namespace
}  // namespace azq::wasm
