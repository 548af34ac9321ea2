/// Binds Game and State with OpenSpiel's names.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "arrays.hpp"
#include "azq/game.hpp"
#include "errors.hpp"
#include "modules.hpp"
#include "games/registry.hpp"
#include "python_game.hpp"

namespace azq::bind {
namespace {

ParamValue to_param(const std::string& game, const std::string& key, const nb::handle& value) {
    if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
    if (nb::isinstance<nb::int_>(value)) return nb::cast<std::int64_t>(value);
    if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
    if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
    raise_azq("ConfigError", "game " + game + ": parameter " + key + " must be a number, a text, true or false");
}

nb::object to_python(const ParamValue& value) {
    return std::visit([](const auto& plain) { return nb::cast(plain); }, value);
}

PyGame load_game(const std::string& name, const nb::dict& params) {
    Params given;
    for (const auto& [key, value] : params) {
        const auto text = nb::cast<std::string>(nb::str(key));
        given[text] = to_param(name, text, value);
    }
    auto [rules, broken] = make_game(name, given);
    if (rules != nullptr) {
        const Dimensions size = rules->dimensions();
        return PyGame{std::move(rules), size};
    }
    const std::vector<std::string> known = registered_names();
    raise_azq(std::find(known.begin(), known.end(), name) == known.end() ? "UnknownGameError" : "ConfigError", broken);
}

nb::dict params(const PyGame& game) {
    nb::dict values;
    for (const auto& [key, value] : game.rules->params()) values[key.c_str()] = to_python(value);
    return values;
}

PyState state_from_notation(const PyGame& game, const std::string& text) {
    auto [state, broken] = game.rules->parse(text);
    if (state == nullptr) raise_azq("ConfigError", game.rules->name() + " has no position '" + text + "': " + broken);
    return PyState(game, std::move(state), {});
}

nb::object outcome_combination(const PyGame& game) {
    std::vector<float> weights = game.rules->outcome_combination();
    if (weights.empty()) return nb::none();
    const float bias = weights.back();
    weights.pop_back();
    return nb::make_tuple(to_numpy(weights, {weights.size()}), bias);
}

nb::dict token_groups(const PyGame& game) {
    nb::dict groups;
    for (const TokenGroup& group : game.dimensions.token_groups) {
        std::vector<std::int32_t> places;
        for (int token = 0; token < group.tokens; ++token) {
            for (int bit = 0; bit < group.bits; ++bit) places.push_back(group.first + token * group.token_stride + bit * group.bit_stride);
        }
        groups[group.name] = to_numpy(places, {static_cast<std::size_t>(group.tokens), static_cast<std::size_t>(group.bits)});
    }
    return groups;
}

nb::object scores(const PyGame& game) {
    if (!game.dimensions.has_scores) return nb::none();
    const ScoreScale& scale = game.dimensions.scores;
    return nb::make_tuple(scale.low, scale.high, scale.step);
}

nb::object action_permutation(const PyGame& game, int symmetry) {
    if (symmetry < 0 || symmetry >= game.dimensions.symmetries) throw nb::index_error("no such symmetry");
    std::vector<std::int32_t> image;
    for (int action = 0; action < game.dimensions.actions; ++action) image.push_back(game.rules->symmetric_action(symmetry, action));
    return to_numpy(image, {image.size()});
}

nb::object plane_permutation(const PyGame& game, int symmetry) {
    if (symmetry < 0 || symmetry >= game.dimensions.symmetries) throw nb::index_error("no such symmetry");
    std::vector<std::int32_t> source;
    for (int cell = 0; cell < game.dimensions.rows * game.dimensions.columns; ++cell) {
        source.push_back(game.rules->symmetric_cell(symmetry, cell));
    }
    return to_numpy(source, {source.size()});
}

/// Plays recorded actions from the start and calls visit(ply, state) before each.
template <class Visit>
std::unique_ptr<AnyState> play_through(const PyGame& game, const Input<std::uint16_t, 1>& actions, Visit&& visit) {
    std::unique_ptr<AnyState> state = game.rules->new_initial_state();
    for (std::size_t ply = 0; ply < actions.shape(0); ++ply) {
        const int action = actions.data()[ply];
        if (!state->is_legal(action)) raise_illegal(action, state->legal(), "at ply " + std::to_string(ply));
        visit(ply, *state);
        state->apply(action);
    }
    return state;
}

nb::tuple replay(const PyGame& game, const Input<std::uint16_t, 1>& actions) {
    const auto plies = actions.shape(0);
    const auto packed_size = static_cast<std::size_t>(game.dimensions.packed_size);
    const auto num_actions = static_cast<std::size_t>(game.dimensions.actions);
    std::vector<std::uint8_t> packed(plies * packed_size);
    std::vector<std::uint8_t> masks(plies * num_actions, 0);
    std::vector<std::int8_t> players(plies);
    const auto state = play_through(game, actions, [&](std::size_t ply, const AnyState& at) {
        players[ply] = static_cast<std::int8_t>(at.actor());
        if (at.actor() < 0) return;
        at.observe(at.actor(), packed.data() + ply * packed_size);
        for (const int legal : at.legal()) masks[ply * num_actions + static_cast<std::size_t>(legal)] = 1;
    });
    return nb::make_tuple(to_numpy(packed, {plies, packed_size}), to_numpy(masks, {plies, num_actions}), to_numpy(players),
                          to_numpy(returns_of(game, *state)));
}

/// What a game that ended teaches besides its result.
nb::dict targets(const PyGame& game, const Input<std::uint16_t, 1>& actions) {
    const Dimensions& size = game.dimensions;
    const auto plies = actions.shape(0);
    const auto players = static_cast<std::size_t>(size.players);
    const auto facts = static_cast<std::size_t>(size.hidden);
    const auto kinds = static_cast<std::size_t>(size.outcome_targets);
    std::vector<std::uint8_t> hidden(plies * facts, 0);
    const auto state = play_through(game, actions, [&](std::size_t ply, const AnyState& at) {
        if (at.actor() >= 0 && facts > 0) at.hidden(at.actor(), hidden.data() + ply * facts);
    });
    std::vector<float> margins(players, 0.0f);
    std::vector<float> outcomes(players * kinds, 0.0f);
    const bool over = state->actor() == kTerminalPlayer;
    for (std::size_t player = 0; over && player < players; ++player) {
        margins[player] = state->margin(static_cast<int>(player));
        if (kinds > 0) state->outcome_targets(static_cast<int>(player), outcomes.data() + player * kinds);
    }
    nb::dict result;
    result["margins"] = to_numpy(margins);
    result["outcomes"] = to_numpy(outcomes, {players, kinds});
    result["hidden"] = to_numpy(hidden, {plies, facts});
    result["truncated"] = state->truncated();
    return result;
}

void apply_action(PyState& self, int action) {
    if (!self.state->is_legal(action)) {
        raise_illegal(action, self.state->legal(), "after " + std::to_string(self.history.size()) + " plies");
    }
    self.state->apply(action);
    self.history.push_back(action);
}

std::vector<int> legal_actions_mask(const PyState& self) {
    const Dimensions& size = self.game.dimensions;
    std::vector<int> mask(static_cast<std::size_t>(self.state->actor() == kChancePlayer ? size.max_outcomes : size.actions), 0);
    for (const int action : self.state->legal()) mask[static_cast<std::size_t>(action)] = 1;
    return mask;
}

std::vector<std::pair<int, double>> chance_outcomes(const PyState& self) {
    std::vector<std::pair<int, double>> outcomes;
    for (const Outcome& outcome : self.state->chance()) outcomes.emplace_back(outcome.outcome, static_cast<double>(outcome.probability));
    return outcomes;
}

void check_player(const PyState& self, int player) {
    if (player < 0 || player >= self.game.dimensions.players) throw nb::index_error("no such player");
}

std::string information_state_string(const PyState& self, std::optional<int> player) {
    const int viewer = player.value_or(self.state->mover());
    check_player(self, viewer);
    return self.state->information_state(viewer);
}

/// `rng`: a seed, or as in OpenSpiel a function that returns numbers in [0, 1).
PyState resample_from_infostate(const PyState& self, int player, const nb::object& rng) {
    check_player(self, player);
    const auto word = [&] { return static_cast<std::uint64_t>(nb::cast<double>(rng()) * 4294967296.0); };
    const std::uint64_t seed = nb::isinstance<nb::int_>(rng) ? nb::cast<std::uint64_t>(rng) : word() << 32 | word();
    return PyState(self.game, self.state->resample(player, seed), self.history);
}

std::vector<std::uint8_t> packed_for(const PyState& self, int player) {
    check_player(self, player);
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(self.game.dimensions.packed_size));
    self.state->observe(player, packed.data());
    return packed;
}

nb::object observation_tensor(const PyState& self, std::optional<int> player) {
    const Dimensions& size = self.game.dimensions;
    const std::vector<std::uint8_t> packed = packed_for(self, player.value_or(self.state->mover()));
    std::vector<float> planes(static_cast<std::size_t>(size.planes * size.rows * size.columns));
    for (std::size_t bit = 0; bit < planes.size(); ++bit) planes[bit] = static_cast<float>((packed[bit / 8] >> (bit % 8)) & 1);
    const auto plane_count = static_cast<std::size_t>(size.planes);
    return to_numpy(planes, {plane_count, static_cast<std::size_t>(size.rows), static_cast<std::size_t>(size.columns)});
}

nb::object scalars(const PyState& self, std::optional<int> player) {
    const std::vector<std::uint8_t> packed = packed_for(self, player.value_or(self.state->mover()));
    const auto count = static_cast<std::size_t>(self.game.dimensions.scalars);
    std::vector<std::int8_t> values;
    for (std::size_t i = packed.size() - count; i < packed.size(); ++i) values.push_back(static_cast<std::int8_t>(packed[i]));
    return to_numpy(values);
}

nb::object packed_observation(const PyState& self, std::optional<int> player) {
    const std::vector<std::uint8_t> packed = packed_for(self, player.value_or(self.state->mover()));
    return to_numpy(packed);
}

}  // namespace

void bind_game(nb::module_& module) {
    module.attr("CHANCE_PLAYER") = kChancePlayer;
    module.attr("TERMINAL_PLAYER") = kTerminalPlayer;
    module.def("game_names", &registered_names);
    module.def("load_game", &load_game, nb::arg("name"), nb::arg("params"));

    nb::class_<PyState>(module, "State", "One position; OpenSpiel's names.")
        .def("current_player", [](const PyState& self) { return self.state->actor(); })
        .def("legal_actions", [](const PyState& self) { return self.state->legal(); })
        .def("legal_actions_mask", &legal_actions_mask)
        .def("apply_action", &apply_action, nb::arg("action"))
        .def("is_terminal", [](const PyState& self) { return self.state->actor() == kTerminalPlayer; })
        .def("returns", [](const PyState& self) { return returns_of(self.game, *self.state); })
        .def("is_chance_node", [](const PyState& self) { return self.state->actor() == kChancePlayer; })
        .def("chance_outcomes", &chance_outcomes)
        .def("notation", [](const PyState& self) { return self.state->notation(); })
        .def("information_state_string", &information_state_string, nb::arg("player") = nb::none())
        .def("resample_from_infostate", &resample_from_infostate, nb::arg("player"), nb::arg("rng"))
        .def("margin", [](const PyState& self, int player) { check_player(self, player); return self.state->margin(player); },
             nb::arg("player"))
        .def("observation_tensor", &observation_tensor, nb::arg("player") = nb::none())
        .def("scalars", &scalars, nb::arg("player") = nb::none())
        .def("packed_observation", &packed_observation, nb::arg("player") = nb::none())
        .def("history", [](const PyState& self) { return self.history; })
        .def("action_to_string", [](const PyState& self, int action) { return self.state->action_text(action); }, nb::arg("action"))
        .def("clone", [](const PyState& self) { return PyState(self); })
        .def("__str__", [](const PyState& self) { return self.state->text(); });

    nb::class_<PyGame>(module, "Game", "The rules of one game with its parameters; OpenSpiel's names.")
        .def_prop_ro("name", [](const PyGame& self) { return self.rules->name(); })
        .def_prop_ro("params", &params)
        .def("num_distinct_actions", [](const PyGame& self) { return self.dimensions.actions; })
        .def("num_players", [](const PyGame& self) { return self.dimensions.players; })
        .def("max_game_length", [](const PyGame& self) { return self.dimensions.max_length; })
        .def("new_initial_state", [](const PyGame& self) { return PyState(self, self.rules->new_initial_state(), {}); })
        .def("observation_planes", [](const PyGame& self) {
            return nb::make_tuple(self.dimensions.planes, self.dimensions.rows, self.dimensions.columns);
        })
        .def("num_scalars", [](const PyGame& self) { return self.dimensions.scalars; })
        .def("packed_size", [](const PyGame& self) { return self.dimensions.packed_size; })
        .def("value_size", [](const PyGame& self) { return self.dimensions.value_size; })
        .def("max_chance_outcomes", [](const PyGame& self) { return self.dimensions.max_outcomes; })
        .def("is_chance", [](const PyGame& self) { return self.dimensions.max_outcomes > 0; })
        .def("is_hidden", [](const PyGame& self) { return self.dimensions.has_hidden; })
        .def("has_margin", [](const PyGame& self) { return self.dimensions.has_margin; })
        .def("num_hidden", [](const PyGame& self) { return self.dimensions.hidden; })
        .def("action_layout", [](const PyGame& self) { return self.dimensions.action_layout; })
        .def("token_groups", &token_groups)
        .def("scores", &scores)
        .def("outcome_combination", &outcome_combination)
        .def("state_from_notation", &state_from_notation, nb::arg("text"))
        .def("targets", &targets, nb::arg("actions"))
        .def("num_symmetries", [](const PyGame& self) { return self.dimensions.symmetries; })
        .def("action_permutation", &action_permutation, nb::arg("symmetry"))
        .def("plane_permutation", &plane_permutation, nb::arg("symmetry"))
        .def("replay", &replay, nb::arg("actions"))
        .def("__repr__", [](const PyGame& self) { return "Game('" + self.rules->name() + "')"; });
}

}  // namespace azq::bind
