/// The rules of a game as the search sees them.
///
/// Headers under azq/ are the one rule book: the Python extension and the browser's WebAssembly compile these same files.
/// Therefore: no threads, exceptions, I/O or clocks; float32 and fixed-width integers only; every target is built with
/// -ffp-contract=off, so that all of them compute the same bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

namespace azq {

inline constexpr int kChancePlayer = -1;    ///< As in OpenSpiel.
inline constexpr int kTerminalPlayer = -4;  ///< As in OpenSpiel.

/// A game: constants that bound its arrays, a small trivially copyable State, and a stateless rules object with its parameters.
///
/// Observations are packed: the planes' bits (plane-major, row-major, little bit order, padded to a byte), then int8 scalars.
/// Zero-sum games for two players: returns(state, 1) == -returns(state, 0), and a value is one number (see value.hpp).
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
};

/// Bytes of a packed observation.
template <Game G>
inline constexpr int kPackedSize = (G::kPlanes * G::kRows * G::kColumns + 7) / 8 + G::kNumScalars;

/// Whether an action may be played here; total on all integers.
template <Game G>
bool is_legal(const G& rules, const typename G::State& state, int action) {
    if (rules.actor(state) < 0) return false;
    std::uint16_t actions[G::kMaxLegal];
    const int count = rules.legal(state, actions);
    for (int i = 0; i < count; ++i) {
        if (actions[i] == action) return true;
    }
    return false;
}

}  // namespace azq
