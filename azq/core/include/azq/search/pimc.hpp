/// Plain determinized search, the classical opponent in games with hidden hands: perfect-information Monte Carlo with random
/// playouts (Ginsberg, "GIB: Imperfect information in a computationally challenging game", JAIR 14, 2001, section 3).
#pragma once

#include "azq/search/uct.hpp"

namespace azq {

/// Each determinization draws what the player to move cannot know; there, every legal action gets one random playout. Plays the
/// action with the largest mean result; ties go to the lowest.
template <Game G>
class Pimc {
  public:
    using State = typename G::State;

    Pimc(const G& rules, int num_determinizations, std::uint64_t seed)
        : rules_(rules), num_determinizations_(num_determinizations), seed_(seed) {}

    /// Of a position where a player is to move.
    int best_action(const State& state) {
        const int player = rules_.actor(state);
        Rng rng(seed_, searches_++, 0, Purpose::kPimc);
        std::uint16_t actions[G::kMaxLegal];
        const int count = rules_.legal(state, actions);
        float sums[G::kMaxLegal] = {};
        for (int number = 0; number < num_determinizations_; ++number) {
            State world = state;
            if constexpr (HasHidden<G>) rules_.resample(world, player, rng);
            for (int i = 0; i < count; ++i) sums[i] += playout(world, actions[i], player, rng);
        }
        int best = 0;
        for (float& value : values_) value = 0.0f;
        for (int i = 0; i < count; ++i) {
            values_[actions[i]] = sums[i] / static_cast<float>(num_determinizations_);
            best = sums[i] > sums[best] ? i : best;
        }
        return actions[best];
    }

    /// Mean results of the last search, kNumActions entries; 0 where illegal.
    void scores(float* of_actions) const { std::copy(values_, values_ + G::kNumActions, of_actions); }

  private:
    float playout(const State& world, int action, int player, Rng& rng) const {
        State end = world;
        rules_.apply(end, action);
        play_randomly(rules_, end, rng);
        return rules_.returns(end, player);
    }

    G rules_;
    int num_determinizations_;
    std::uint64_t seed_;
    std::uint64_t searches_ = 0;
    float values_[G::kNumActions] = {};
};

/// For benchmarks: plays uniformly to the end and redraws the hidden hands so many times at every decision. Returns how often.
template <Game G>
    requires HasHidden<G>
std::int64_t redraw_randomly(const G& rules, typename G::State& state, int times, Rng& rng) {
    std::uint16_t actions[G::kMaxLegal];
    std::int64_t redraws = 0;
    for (;;) {
        settle_chance(rules, state, rng);
        if (rules.actor(state) == kTerminalPlayer) return redraws;
        typename G::State world = state;
        for (int time = 0; time < times; ++time) rules.resample(world, rules.actor(state), rng);
        redraws += times;
        const int count = rules.legal(world, actions);  // what is legal does not depend on what is hidden
        rules.apply(state, actions[rng.below(count)]);
    }
}

}  // namespace azq
