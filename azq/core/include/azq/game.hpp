/// The rules of a game as the search sees them.
///
/// Headers under azq/ are the one rule book: the Python extension and the WebAssembly of browsers are compiled from them.
/// Therefore: no threads, exceptions, I/O or clocks; float32 and fixed-width integers only; every target is built with
/// -ffp-contract=off, so that all of them compute the same bits.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "azq/rng.hpp"
#include "azq/score.hpp"

namespace azq {

inline constexpr int kChancePlayer = -1;    ///< As in OpenSpiel.
inline constexpr int kTerminalPlayer = -4;  ///< As in OpenSpiel.

/// One thing that chance may do, numbered in a range of its own (as in OpenSpiel, independent of actions).
struct Outcome {
    std::uint16_t outcome;
    float probability;
};

/// A game: constants that bound its arrays, a small trivially copyable State, and a stateless rules object with its parameters.
///
/// Observations are packed: the planes' bits (plane-major, row-major, little bit order, padded to a byte), then int8 scalars.
/// They are seat-relative: seat r = (owner - viewer) mod n; a function of what the viewer knows, and enough to know what is legal.
/// Two players are zero-sum: returns(state, 1) == -returns(state, 0), and a value is one number; more have a value each (value.hpp).
/// What a game may have besides is found by the concepts below.
template <class G>
concept Game = requires(const G rules, typename G::State& state, const typename G::State& position, std::uint16_t* actions,
                        std::uint8_t* packed, int number) {
    requires std::is_trivially_copyable_v<typename G::State>;
    { G::kName } -> std::convertible_to<const char*>;
    { G::kNumPlayers } -> std::convertible_to<int>;
    { G::kNumActions } -> std::convertible_to<int>;     ///< Distinct actions: 0 .. kNumActions - 1.
    { G::kMaxLegal } -> std::convertible_to<int>;       ///< Most actions legal in one position.
    { G::kMaxLength } -> std::convertible_to<int>;      ///< Most plies of a game.
    { G::kPlanes } -> std::convertible_to<int>;
    { G::kRows } -> std::convertible_to<int>;
    { G::kColumns } -> std::convertible_to<int>;
    { G::kNumScalars } -> std::convertible_to<int>;
    { G::kNumSymmetries } -> std::convertible_to<int>;  ///< Identity included; symmetry 0 is the identity.
    { rules.initial() } -> std::same_as<typename G::State>;
    { rules.actor(position) } -> std::same_as<int>;     ///< The player to move, or kTerminalPlayer.
    { rules.mover(position) } -> std::same_as<int>;     ///< actor(), and in a terminal position whose turn it would be.
    { rules.legal(position, actions) } -> std::same_as<int>;   ///< Writes legal actions in ascending order, returns how many.
    { rules.apply(state, number) };                     ///< Plays a legal action; anything else is undefined.
    { rules.returns(position, number) } -> std::same_as<float>;  ///< Of a terminal position, for a player, in [-1, 1].
    { rules.observe(position, number, packed) };        ///< Packed observation from a player's view.
    { rules.symmetric_action(number, number) } -> std::same_as<int>;  ///< (symmetry, action): its image.
    { rules.symmetric_cell(number, number) } -> std::same_as<int>;    ///< (symmetry, cell of the image): the cell it shows.
    { rules.action_text(position, number) } -> std::same_as<std::string>;
    { rules.text(position) } -> std::same_as<std::string>;
    { rules.notation(position) } -> std::same_as<std::string>;            ///< The whole position on one line.
    { rules.parse(std::string(), state) } -> std::same_as<std::string>;  ///< Reads notation; "" or the rule that was broken.
};

/// Chance nodes: actor() is kChancePlayer, chance(state, outcomes) lists what may happen with probabilities that sum to 1,
/// and apply takes an outcome.
template <class G>
concept HasChance = requires(const G rules, const typename G::State& position, Outcome* outcomes) {
    { G::kMaxOutcomes } -> std::convertible_to<int>;
    { rules.chance(position, outcomes) } -> std::same_as<int>;
};

/// Hidden information: resample(state, player, rng) redraws what the player cannot know, uniformly over what is consistent with
/// what he knows; information_state(state, player) is all of that as text.
template <class G>
concept HasHidden = requires(const G rules, typename G::State& state, const typename G::State& position, int player, Rng& rng) {
    { rules.resample(state, player, rng) };
    { rules.information_state(position, player) } -> std::same_as<std::string>;
};

/// A terminal position says more than its value: K targets in [0, 1] for a player, whose weighted sum is the value.
template <class G>
concept HasOutcomeTargets = requires(const G rules, const typename G::State& position, int player, float* targets) {
    { G::kNumOutcomeTargets } -> std::convertible_to<int>;
    { rules.kOutcomeBias } -> std::convertible_to<float>;
    { rules.kOutcomeWeights[0] } -> std::convertible_to<float>;
    { rules.outcome_targets(position, player, targets) };
};

/// By how much a player won, in [-1, 1].
template <class G>
concept HasMargin = requires(const G rules, const typename G::State& position, int player) {
    { rules.margin(position, player) } -> std::same_as<float>;
};

/// Facts hidden from a player, each 0 or 1: what a belief head predicts.
template <class G>
concept HasHiddenTargets = requires(const G rules, const typename G::State& position, int player, std::uint8_t* targets) {
    { G::kNumHidden } -> std::convertible_to<int>;
    { rules.hidden(position, player, targets) };
};

/// A safety cap may end a game, which is then not trained on.
template <class G>
concept HasTruncation = requires(const G rules, const typename G::State& position) {
    { rules.truncated(position) } -> std::same_as<bool>;
};

/// For one player: returns(state, 0) is a score, as a value on this scale. What is scored on the way is in it: the value of a position
/// is what came so far and what is to come.
template <class G>
concept HasScores = requires {
    { G::kScores } -> std::convertible_to<ScoreScale>;
    requires G::kNumPlayers == 1;
};

/// Actions lie on the board: "cells" or "columns". The first action names the first cell or column, row by row, and so on, the board
/// over again as often as the actions suffice for; those that are left over (a pass, a swap) lie nowhere.
template <class G>
concept HasActionLayout = requires {
    { G::kActionLayout } -> std::convertible_to<const char*>;
};

/// Tokens of an observation that belong together: token t reads, in this order, the planes' bits first + t * token_stride + b * bit_stride, b < bits.
struct TokenGroup {
    const char* name;
    int first, tokens, bits, token_stride, bit_stride;
};

/// A token a plane of the cells first_cell .. first_cell + cells - 1.
constexpr TokenGroup tokens_by_plane(const char* name, int all_cells, int first_plane, int planes, int first_cell, int cells) {
    return {name, first_plane * all_cells + first_cell, planes, cells, all_cells, 1};
}

/// A token a cell of the same, which reads its bits in these planes.
constexpr TokenGroup tokens_by_cell(const char* name, int all_cells, int first_plane, int planes, int first_cell, int cells) {
    return {name, first_plane * all_cells + first_cell, cells, planes, 1, all_cells};
}

/// Observations fall into groups of tokens, each of which a network may give an encoder of its own; bits may lie in none.
template <class G>
concept HasTokenGroups = requires {
    { G::kTokenGroups.size() } -> std::convertible_to<std::size_t>;
    { G::kTokenGroups[0] } -> std::convertible_to<const TokenGroup&>;
};

/// Values per position: one for two players, else one a seat.
template <Game G>
inline constexpr int kValueSize = G::kNumPlayers <= 2 ? 1 : G::kNumPlayers;

/// Whether simulations must sample: chance or hidden hands. Everything else is searched by proofs and stored positions.
template <Game G>
inline constexpr bool kSampled = HasChance<G> || HasHidden<G> || G::kNumPlayers != 2;

/// Bytes of a packed observation.
template <Game G>
inline constexpr int kPackedSize = (G::kPlanes * G::kRows * G::kColumns + 7) / 8 + G::kNumScalars;

/// Whether an action may be played here, or an outcome happen; total on all integers.
template <Game G>
bool is_legal(const G& rules, const typename G::State& state, int action) {
    if constexpr (HasChance<G>) {
        if (rules.actor(state) == kChancePlayer) {
            Outcome outcomes[G::kMaxOutcomes];
            const int count = rules.chance(state, outcomes);
            for (int i = 0; i < count; ++i) {
                if (outcomes[i].outcome == action) return true;
            }
            return false;
        }
    }
    if (rules.actor(state) < 0) return false;
    std::uint16_t actions[G::kMaxLegal];
    const int count = rules.legal(state, actions);
    for (int i = 0; i < count; ++i) {
        if (actions[i] == action) return true;
    }
    return false;
}

}  // namespace azq
