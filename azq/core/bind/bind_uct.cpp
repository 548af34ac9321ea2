/// Binds the classical opponent and the random-game benchmark.
#include <nanobind/stl/pair.h>

#include "arrays.hpp"
#include "errors.hpp"
#include "modules.hpp"
#include "python_game.hpp"

namespace azq::bind {
namespace {

struct PyUct {
    PyGame game;
    std::unique_ptr<AnyUct> uct;
};

int best_action(PyUct& self, const PyState& state) {
    if (!same_game(state.game, self.game)) throw nb::value_error("the state belongs to another game, or to other parameters of it");
    if (state.state->legal().empty()) throw nb::value_error("the game is over: there is no action to choose");
    const nb::gil_scoped_release release;
    return self.uct->best_action(*state.state);
}

}  // namespace

void bind_uct(nb::module_& module) {
    nb::class_<PyUct>(module, "Uct", "Pure UCT (UCB1, random playouts to the end): Kocsis and Szepesvari, ECML 2006.")
        .def("__init__", [](PyUct* self, const PyGame& game, int num_simulations, std::uint64_t seed, float c_uct) {
            if (num_simulations < 1) raise_azq("ConfigError", "num_simulations must be at least 1");
            std::unique_ptr<AnyUct> uct = game.rules->make_uct(num_simulations, seed, c_uct);
            if (uct == nullptr) raise_azq("ConfigError", "uct knows no chance and no hidden hands; for " + game.rules->name() + " use pimc");
            new (self) PyUct{game, std::move(uct)};
        }, nb::arg("game"), nb::kw_only(), nb::arg("num_simulations"), nb::arg("seed"), nb::arg("c_uct") = 1.414f)
        .def("best_action", &best_action, nb::arg("state"))
        .def("visit_counts", [](const PyUct& self) {
            const std::vector<std::int32_t> counts = self.uct->visit_counts();
            return to_numpy(counts, {counts.size()});
        });

    module.def("random_playouts", [](const PyGame& game, std::int64_t count, std::uint64_t seed) {
        const nb::gil_scoped_release release;
        return game.rules->random_playouts(count, seed);
    }, nb::arg("game"), nb::arg("count"), nb::arg("seed"), "Plays uniformly random games; returns (games, plies).");
}

}  // namespace azq::bind
