/// The Python classes Game and State.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "azq/any/any_game.hpp"

namespace azq::bind {

/// Rules shared by every state and search made from them.
struct PyGame {
    std::shared_ptr<const AnyGame> rules;
    Dimensions dimensions;
};

/// Whether two games have the same rules: the same C++ types behind them.
inline bool same_game(const PyGame& one, const PyGame& other) {
    return one.rules->name() == other.rules->name() && one.rules->params() == other.rules->params();
}

inline std::vector<float> returns_of(const PyGame& game, const AnyState& state) {
    std::vector<float> values;
    for (int player = 0; player < game.dimensions.players; ++player) values.push_back(state.returns(player));
    return values;
}

/// A position with the actions that led to it.
struct PyState {
    PyGame game;
    std::unique_ptr<AnyState> state;
    std::vector<int> history;

    PyState(PyGame from, std::unique_ptr<AnyState> position, std::vector<int> actions)
        : game(std::move(from)), state(std::move(position)), history(std::move(actions)) {}
    PyState(const PyState& other) : game(other.game), state(other.state->clone()), history(other.history) {}
};

}  // namespace azq::bind
