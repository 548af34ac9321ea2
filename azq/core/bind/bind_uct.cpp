/// Binds the classical opponent and the random-game benchmark.
#include <nanobind/stl/pair.h>

#include "arrays.hpp"
#include "azq/game.hpp"
#include "errors.hpp"
#include "modules.hpp"
#include "python_game.hpp"

namespace azq::bind {
namespace {

template <class Any>
struct Classical {
    PyGame game;
    std::unique_ptr<Any> search;
};
using PyUct = Classical<AnyUct>;
using PyPimc = Classical<AnyPimc>;

void check_playable(const PyGame& game, const PyState& state) {
    if (!same_game(state.game, game)) throw nb::value_error("the state belongs to another game, or to other parameters of it");
    if (state.state->actor() == kTerminalPlayer) throw nb::value_error("the game is over: there is no action to choose");
    if (state.state->actor() == kChancePlayer) throw nb::value_error("chance is to act here: there is no action to choose");
}

template <class Any>
int best_action(Classical<Any>& self, const PyState& state) {
    check_playable(self.game, state);
    const nb::gil_scoped_release release;
    return self.search->best_action(*state.state);
}

}  // namespace

void bind_uct(nb::module_& module) {
    nb::class_<PyUct>(module, "Uct", "Pure UCT (UCB1, random playouts to the end): Kocsis and Szepesvari, ECML 2006.")
        .def("__init__", [](PyUct* self, const PyGame& game, int num_simulations, std::uint64_t seed, float c_uct) {
            if (num_simulations < 1) raise_azq("ConfigError", "num_simulations must be at least 1");
            std::unique_ptr<AnyUct> uct = game.rules->make_uct(num_simulations, seed, c_uct);
            if (uct == nullptr) raise_azq("ConfigError", "uct would see hidden hands; for " + game.rules->name() + " use pimc");
            new (self) PyUct{game, std::move(uct)};
        }, nb::arg("game"), nb::kw_only(), nb::arg("num_simulations"), nb::arg("seed"), nb::arg("c_uct") = 1.414f)
        .def("best_action", &best_action<AnyUct>, nb::arg("state"))
        .def("visit_counts", [](const PyUct& self) { return to_numpy(self.search->scores()); });

    nb::class_<PyPimc>(module, "Pimc", "Perfect-information Monte Carlo with random playouts: Ginsberg, JAIR 14, 2001.")
        .def("__init__", [](PyPimc* self, const PyGame& game, int num_determinizations, std::uint64_t seed) {
            if (num_determinizations < 1) raise_azq("ConfigError", "num_determinizations must be at least 1");
            new (self) PyPimc{game, game.rules->make_pimc(num_determinizations, seed)};
        }, nb::arg("game"), nb::kw_only(), nb::arg("num_determinizations"), nb::arg("seed"))
        .def("best_action", &best_action<AnyPimc>, nb::arg("state"))
        .def("action_values", [](const PyPimc& self) { return to_numpy(self.search->scores()); });

    module.def("random_playouts", [](const PyGame& game, std::int64_t count, std::uint64_t seed) {
        const nb::gil_scoped_release release;
        return game.rules->random_playouts(count, seed);
    }, nb::arg("game"), nb::arg("count"), nb::arg("seed"), "Plays uniformly random games; returns (games, plies).");

    module.def("random_redraws", [](const PyGame& game, std::int64_t count, std::uint64_t seed) {
        const nb::gil_scoped_release release;
        return game.rules->random_redraws(count, seed);
    }, nb::arg("game"), nb::arg("count"), nb::arg("seed"), "Redraws hidden hands at every decision of random games; returns how often.");
}

}  // namespace azq::bind
