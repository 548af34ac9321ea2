/// Drawing what chance does.
#pragma once

#include "azq/game.hpp"

namespace azq {

/// The outcome that a number in (0, 1) falls on; the last one where rounding runs over the end.
template <HasChance G>
int pick_outcome(const G& rules, const typename G::State& state, float target) {
    Outcome outcomes[G::kMaxOutcomes];
    const int count = rules.chance(state, outcomes);
    float passed = 0.0f;
    for (int i = 0; i < count; ++i) {
        passed += outcomes[i].probability;
        if (target < passed) return outcomes[i].outcome;
    }
    return outcomes[count - 1].outcome;
}

/// Lets chance act until a player is to move or the game is over.
template <Game G>
void settle_chance(const G& rules, typename G::State& state, Rng& rng) {
    if constexpr (HasChance<G>) {
        while (rules.actor(state) == kChancePlayer) rules.apply(state, pick_outcome(rules, state, rng.uniform()));
    }
}

}  // namespace azq
