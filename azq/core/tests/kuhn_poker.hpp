/// Kuhn poker, the smallest game with chance and hidden hands, for tests of the search (Kuhn, "Simplified two-person poker", 1950).
#pragma once

#include <string>

#include "azq/game.hpp"

namespace azq::test {

/// Three cards, one each; 0 passes, 1 bets. Returns are halved, so that they fit [-1, 1].
struct KuhnPoker {
    static constexpr const char* kName = "kuhn_poker";
    static constexpr int kNumPlayers = 2;
    static constexpr int kNumActions = 2;
    static constexpr int kMaxLegal = 2;
    static constexpr int kMaxLength = 3;
    static constexpr int kPlanes = 4;  ///< Own card, then the actions of the plies so far: passed, bet, open.
    static constexpr int kRows = 1;
    static constexpr int kColumns = 3;
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 1;
    static constexpr int kMaxOutcomes = 3;

    struct State {
        std::int8_t cards[2];  ///< -1: not dealt.
        std::int8_t plies;
        std::int8_t bets;  ///< Bit p: ply p was a bet.
    };

    State initial() const { return {{-1, -1}, 0, 0}; }

    static bool over(const State& state) {
        const bool bet_first = (state.bets & 1) != 0;
        return state.plies == 3 || (state.plies == 2 && (bet_first || (state.bets & 2) == 0));
    }

    int mover(const State& state) const { return state.plies & 1; }

    int actor(const State& state) const {
        if (state.cards[1] < 0) return kChancePlayer;
        return over(state) ? kTerminalPlayer : mover(state);
    }

    int legal(const State&, std::uint16_t* actions) const {
        actions[0] = 0;
        actions[1] = 1;
        return 2;
    }

    int chance(const State& state, Outcome* outcomes) const {
        int count = 0;
        for (std::uint16_t card = 0; card < 3; ++card) {
            if (state.cards[0] != card) outcomes[count++] = {card, state.cards[0] < 0 ? 1.0f / 3.0f : 0.5f};
        }
        return count;
    }

    void apply(State& state, int number) const {
        if (state.cards[1] < 0) {
            state.cards[state.cards[0] < 0 ? 0 : 1] = static_cast<std::int8_t>(number);
            return;
        }
        state.bets = static_cast<std::int8_t>(state.bets | number << state.plies);
        ++state.plies;
    }

    float returns(const State& state, int player) const {
        const bool higher = state.cards[player] > state.cards[1 - player];
        if (state.plies == 2 && state.bets == 0) return higher ? 0.5f : -0.5f;
        if (state.plies == 2 && state.bets == 3) return higher ? 1.0f : -1.0f;
        if (state.plies == 2) return player == 0 ? 0.5f : -0.5f;  // bet, pass
        if (state.bets == 2) return player == 1 ? 0.5f : -0.5f;   // pass, bet, pass
        return higher ? 1.0f : -1.0f;
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        unsigned bits = state.cards[player] < 0 ? 0u : 1u << state.cards[player];
        for (int ply = 0; ply < 3; ++ply) {
            const int plane = ply >= state.plies ? 3 : ((state.bets >> ply) & 1 ? 2 : 1);
            bits |= 1u << (3 * plane + ply);
        }
        packed[0] = static_cast<std::uint8_t>(bits);
        packed[1] = static_cast<std::uint8_t>(bits >> 8);
    }

    void resample(State& state, int player, Rng& rng) const {
        if (state.cards[1] < 0) return;
        const int other = (state.cards[player] + 1 + rng.below(2)) % 3;
        state.cards[1 - player] = static_cast<std::int8_t>(other);
    }

    std::string information_state(const State& state, int player) const {
        return std::to_string(state.cards[player]) + "/" + std::to_string(state.plies) + "/" + std::to_string(state.bets);
    }

    int symmetric_action(int, int action) const { return action; }
    int symmetric_cell(int, int cell) const { return cell; }
    std::string action_text(const State&, int action) const { return action == 0 ? "pass" : "bet"; }
    std::string text(const State& state) const { return information_state(state, 0) + "/" + std::to_string(state.cards[1]); }
    std::string notation(const State& state) const { return text(state); }
    std::string parse(const std::string&, State&) const { return "not needed here"; }
};

static_assert(Game<KuhnPoker> && HasChance<KuhnPoker> && HasHidden<KuhnPoker> && kSampled<KuhnPoker>);

}  // namespace azq::test
