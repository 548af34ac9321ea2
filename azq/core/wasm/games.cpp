/// Games and positions as JavaScript sees them: handles that it frees itself.
#include "games/registry.hpp"

#include <utility>

#include "azq/game.hpp"
#include "exchange.hpp"

namespace azq::wasm {
namespace {

AZQ_EXPORT(azq_game_names) void game_names() {
    std::string names;
    for (const std::string& name : registered_names()) names += (names.empty() ? "" : "\n") + name;
    exchange().answer(names);
}

/// The game that the input names, with the parameters in force; null and why not.
AZQ_EXPORT(azq_load_game) const AnyGame* load_game() {
    Exchange& all = exchange();
    auto [game, broken] = make_game(all.text(0, all.input.size()), std::exchange(all.params, {}));
    all.answer(broken);
    return game.release();
}

AZQ_EXPORT(azq_game_name) void game_name(const AnyGame& game) { exchange().answer(game.name()); }

/// As i32, in the order that core.js names.
AZQ_EXPORT(azq_dimensions) void dimensions(const AnyGame& game) {
    const Dimensions size = game.dimensions();
    exchange().output.clear();
    exchange().append(std::vector<std::int32_t>{size.actions, size.players, size.scalars, size.packed_size, size.value_size, size.max_length,
                                                size.planes, size.rows, size.columns, size.max_outcomes, size.has_hidden});
}

/// All parameters with their values, as JSON: texts are names, without anything to escape.
AZQ_EXPORT(azq_params) void params(const AnyGame& game) {
    std::string json;
    for (const auto& [name, value] : game.params()) {
        json += (json.empty() ? "{\"" : ",\"") + name + "\":";
        if (const bool* flag = std::get_if<bool>(&value)) json += *flag ? "true" : "false";
        if (const auto* integer = std::get_if<std::int64_t>(&value)) json += std::to_string(*integer);
        if (const auto* text = std::get_if<std::string>(&value)) json += '"' + *text + '"';
    }
    exchange().answer(json.empty() ? "{}" : json + "}");
}

AZQ_EXPORT(azq_initial) AnyState* initial(const AnyGame& game) { return game.new_initial_state().release(); }

/// The position of the line in the input; null and the rule that it breaks.
AZQ_EXPORT(azq_parse) AnyState* parse(const AnyGame& game) {
    Exchange& all = exchange();
    const std::string line = all.text(0, all.input.size());
    auto [state, broken] = game.parse(line);
    if (state == nullptr) all.refuse(game.name() + " has no position '" + line + "': " + broken);
    return state.release();
}

AZQ_EXPORT(azq_clone) AnyState* clone(const AnyState& state) { return state.clone().release(); }
AZQ_EXPORT(azq_free_state) void free_state(AnyState* state) { delete state; }
AZQ_EXPORT(azq_actor) int actor(const AnyState& state) { return state.actor(); }
AZQ_EXPORT(azq_mover) int mover(const AnyState& state) { return state.mover(); }
AZQ_EXPORT(azq_resample) AnyState* resample(const AnyState& state, int player, std::uint64_t seed) { return state.resample(player, seed).release(); }

/// As i32: actions, or outcomes where chance acts.
AZQ_EXPORT(azq_legal) void legal(const AnyState& state) {
    exchange().output.clear();
    exchange().append(state.legal());
}

/// How many outcomes, the outcomes, i32, and their probabilities, f32.
AZQ_EXPORT(azq_chance) void chance(const AnyState& state) {
    const std::vector<Outcome> outcomes = state.chance();
    exchange().output.clear();
    exchange().append(static_cast<std::int32_t>(outcomes.size()));
    for (const Outcome& outcome : outcomes) exchange().append(std::int32_t{outcome.outcome});
    for (const Outcome& outcome : outcomes) exchange().append(outcome.probability);
}

AZQ_EXPORT(azq_act) int act(AnyState& state, int action) {
    if (!state.is_legal(action)) return exchange().refuse(illegal(action, state, "here"));
    state.apply(action);
    return 0;
}

AZQ_EXPORT(azq_action_text) int action_text(const AnyState& state, int action) {
    if (!state.is_legal(action)) return exchange().refuse(illegal(action, state, "here"));
    exchange().answer(state.action_text(action));
    return 0;
}

AZQ_EXPORT(azq_text) void text(const AnyState& state) { exchange().answer(state.text()); }
AZQ_EXPORT(azq_notation) void notation(const AnyState& state) { exchange().answer(state.notation()); }
AZQ_EXPORT(azq_information) void information(const AnyState& state, int player) { exchange().answer(state.information_state(player)); }

AZQ_EXPORT(azq_returns) void returns(const AnyState& state, int players) {
    exchange().output.clear();
    for (int player = 0; player < players; ++player) exchange().append(state.returns(player));
}

/// The packed observation.
AZQ_EXPORT(azq_observe) void observe(const AnyState& state, int player, std::size_t packed_size) {
    exchange().output.resize(packed_size);
    state.observe(player, reinterpret_cast<std::uint8_t*>(exchange().output.data()));
}

}  // namespace
}  // namespace azq::wasm
