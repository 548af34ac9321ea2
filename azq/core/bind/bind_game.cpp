/// Binds Game and State with OpenSpiel's names.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arrays.hpp"
#include "azq/game.hpp"
#include "errors.hpp"
#include "modules.hpp"
#include "python_game.hpp"

namespace azq::bind {
namespace {

using Factory = std::unique_ptr<AnyGame> (*)();

struct Entry {
    const char* name;
    Factory make;
};

constexpr Entry kGames[] = {{"connect_four", make_connect_four}, {"tic_tac_toe", make_tic_tac_toe}};

std::vector<std::string> game_names() {
    std::vector<std::string> names;
    for (const Entry& entry : kGames) names.emplace_back(entry.name);
    return names;
}

PyGame load_game(const std::string& name, const nb::dict& params) {
    for (const Entry& entry : kGames) {
        if (name != entry.name) continue;
        for (const auto& [key, value] : params) {
            raise_azq("ConfigError", "game " + name + " has no parameter " + nb::cast<std::string>(nb::str(key)) + "; it takes none");
        }
        std::shared_ptr<const AnyGame> rules = entry.make();
        return PyGame{rules, rules->dimensions()};
    }
    std::string known;
    for (const Entry& entry : kGames) known += (known.empty() ? "" : ", ") + std::string(entry.name);
    raise_azq("UnknownGameError", "no game is called '" + name + "'; known games: " + known);
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

nb::tuple replay(const PyGame& game, const Input<std::uint16_t, 1>& actions) {
    const auto plies = actions.shape(0);
    const auto packed_size = static_cast<std::size_t>(game.dimensions.packed_size);
    const auto num_actions = static_cast<std::size_t>(game.dimensions.actions);
    std::vector<std::uint8_t> packed(plies * packed_size);
    std::vector<std::uint8_t> masks(plies * num_actions, 0);
    std::vector<std::int8_t> players(plies);
    const std::unique_ptr<AnyState> state = game.rules->new_initial_state();
    for (std::size_t ply = 0; ply < plies; ++ply) {
        const int action = actions.data()[ply];
        if (!state->is_legal(action)) raise_illegal(action, state->legal(), "at ply " + std::to_string(ply));
        state->observe(state->actor(), packed.data() + ply * packed_size);
        for (const int legal : state->legal()) masks[ply * num_actions + static_cast<std::size_t>(legal)] = 1;
        players[ply] = static_cast<std::int8_t>(state->actor());
        state->apply(action);
    }
    std::vector<float> returns;
    for (int player = 0; player < game.dimensions.players; ++player) returns.push_back(state->returns(player));
    return nb::make_tuple(to_numpy(packed, {plies, packed_size}), to_numpy(masks, {plies, num_actions}), to_numpy(players, {plies}),
                          to_numpy(returns, {returns.size()}));
}

void apply_action(PyState& self, int action) {
    if (!self.state->is_legal(action)) {
        raise_illegal(action, self.state->legal(), "after " + std::to_string(self.history.size()) + " plies");
    }
    self.state->apply(action);
    self.history.push_back(action);
}

std::vector<int> legal_actions_mask(const PyState& self) {
    std::vector<int> mask(static_cast<std::size_t>(self.game.dimensions.actions), 0);
    for (const int action : self.state->legal()) mask[static_cast<std::size_t>(action)] = 1;
    return mask;
}

std::vector<float> returns(const PyState& self) {
    std::vector<float> values;
    for (int player = 0; player < self.game.dimensions.players; ++player) values.push_back(self.state->returns(player));
    return values;
}

std::vector<std::uint8_t> packed_for(const PyState& self, int player) {
    if (player < 0 || player >= self.game.dimensions.players) throw nb::index_error("no such player");
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

nb::object packed_observation(const PyState& self) {
    const std::vector<std::uint8_t> packed = packed_for(self, self.state->mover());
    return to_numpy(packed, {packed.size()});
}

}  // namespace

void bind_game(nb::module_& module) {
    module.attr("CHANCE_PLAYER") = kChancePlayer;
    module.attr("TERMINAL_PLAYER") = kTerminalPlayer;
    module.def("game_names", &game_names);
    module.def("load_game", &load_game, nb::arg("name"), nb::arg("params"));

    nb::class_<PyState>(module, "State", "One position; OpenSpiel's names.")
        .def("current_player", [](const PyState& self) { return self.state->actor(); })
        .def("legal_actions", [](const PyState& self) { return self.state->legal(); })
        .def("legal_actions_mask", &legal_actions_mask)
        .def("apply_action", &apply_action, nb::arg("action"))
        .def("is_terminal", [](const PyState& self) { return self.state->actor() == kTerminalPlayer; })
        .def("returns", &returns)
        .def("is_chance_node", [](const PyState& self) { return self.state->actor() == kChancePlayer; })
        .def("chance_outcomes", [](const PyState&) { return std::vector<std::pair<int, double>>(); })
        .def("observation_tensor", &observation_tensor, nb::arg("player") = nb::none())
        .def("packed_observation", &packed_observation)
        .def("history", [](const PyState& self) { return self.history; })
        .def("action_to_string", [](const PyState& self, int action) { return self.state->action_text(action); }, nb::arg("action"))
        .def("clone", [](const PyState& self) { return PyState(self); })
        .def("__str__", [](const PyState& self) { return self.state->text(); });

    nb::class_<PyGame>(module, "Game", "The rules of one game with its parameters; OpenSpiel's names.")
        .def_prop_ro("name", [](const PyGame& self) { return self.rules->name(); })
        .def_prop_ro("params", [](const PyGame&) { return nb::dict(); })
        .def("num_distinct_actions", [](const PyGame& self) { return self.dimensions.actions; })
        .def("num_players", [](const PyGame& self) { return self.dimensions.players; })
        .def("max_game_length", [](const PyGame& self) { return self.dimensions.max_length; })
        .def("new_initial_state", [](const PyGame& self) { return PyState(self, self.rules->new_initial_state(), {}); })
        .def("observation_planes", [](const PyGame& self) {
            return nb::make_tuple(self.dimensions.planes, self.dimensions.rows, self.dimensions.columns);
        })
        .def("num_scalars", [](const PyGame& self) { return self.dimensions.scalars; })
        .def("packed_size", [](const PyGame& self) { return self.dimensions.packed_size; })
        .def("value_size", [](const PyGame&) { return 1; })
        .def("num_symmetries", [](const PyGame& self) { return self.dimensions.symmetries; })
        .def("action_permutation", &action_permutation, nb::arg("symmetry"))
        .def("plane_permutation", &plane_permutation, nb::arg("symmetry"))
        .def("replay", &replay, nb::arg("actions"))
        .def("__repr__", [](const PyGame& self) { return "Game('" + self.rules->name() + "')"; });
}

}  // namespace azq::bind
