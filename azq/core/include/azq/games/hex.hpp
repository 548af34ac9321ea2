/// Hex: player 0 joins top and bottom, player 1 left and right. Action ids and results as OpenSpiel's hex.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "azq/board_text.hpp"
#include "azq/game.hpp"
#include "azq/square.hpp"

namespace azq {

/// Cell (row, column) is action Size * row + column; neighbours are (0, +-1), (+-1, 0), (+1, -1), (-1, +1).
/// `Swap`: the second player may answer the first stone by taking its mirror image for himself (action Size * Size).
template <int Size, bool Swap = false>
struct Hex {
    static_assert(Size >= 2 && Size <= 31);

    static constexpr const char* kName = "hex";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = Size;
    static constexpr int kColumns = Size;
    static constexpr int kCells = Size * Size;
    static constexpr int kSwap = kCells;
    static constexpr int kNumActions = kCells + (Swap ? 1 : 0);
    static constexpr const char* kActionLayout = "cells";
    static constexpr int kMaxLegal = kCells;
    static constexpr int kMaxLength = kCells + (Swap ? 1 : 0);
    static constexpr int kPlanes = Swap ? 4 : 3;  ///< Own stones, the other's, "I am player 0"; with Swap: the stone may be stolen.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 2;      ///< Identity, half a turn.

    struct State {
        std::uint32_t stones[2][Size];  ///< A row each, bit = column; by player.
        std::uint32_t joined[2][Size];  ///< Those connected to the player's first edge: top, left.
        std::int16_t plies;
        std::int8_t player;  ///< To move.
        std::int8_t winner;  ///< -1: nobody yet.
    };

    State initial() const {
        State state{};
        state.winner = -1;
        return state;
    }

    int actor(const State& state) const { return state.winner >= 0 ? kTerminalPlayer : state.player; }
    int mover(const State& state) const { return state.player; }

    int legal(const State& state, std::uint16_t* actions) const {
        int count = 0;
        for (int row = 0; row < Size; ++row) {
            std::uint32_t open = ~(state.stones[0][row] | state.stones[1][row]) & kRow;
            for (; open != 0; open &= open - 1) actions[count++] = static_cast<std::uint16_t>(Size * row + std::countr_zero(open));
        }
        if (can_swap(state)) actions[count++] = kSwap;
        return count;
    }

    void apply(State& state, int action) const {
        const int player = state.player;
        const int cell = action == kSwap ? take_first_stone(state) : action;
        state.stones[player][cell / Size] |= 1u << cell % Size;
        join(state, player, cell / Size, cell % Size);
        state.player = static_cast<std::int8_t>(1 - player);
        ++state.plies;
    }

    float returns(const State& state, int player) const {
        if (state.winner < 0) return 0.0f;
        return player == state.winner ? 1.0f : -1.0f;
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        BitWriter writer(packed);
        for (int row = 0; row < Size; ++row) writer.put(state.stones[player][row], Size);
        for (int row = 0; row < Size; ++row) writer.put(state.stones[1 - player][row], Size);
        for (int row = 0; row < Size; ++row) writer.put(player == 0 ? kRow : 0u, Size);
        for (int row = 0; Swap && row < Size; ++row) writer.put(can_swap(state) ? kRow : 0u, Size);
        writer.finish();
    }

    int symmetric_action(int symmetry, int action) const { return symmetry == 0 || action == kSwap ? action : kCells - 1 - action; }
    int symmetric_cell(int symmetry, int cell) const { return symmetry == 0 ? cell : kCells - 1 - cell; }

    std::string action_text(const State&, int action) const { return action == kSwap ? "swap" : cell_text(action); }

    std::string text(const State& state) const {
        std::string board;
        for (int row = 0; row < Size; ++row) {
            board += std::string(static_cast<std::size_t>(row), ' ');
            for (int column = 0; column < Size; ++column) {
                board += mark(state, row, column);
                board += column + 1 < Size ? " " : "\n";
            }
        }
        return board;
    }

    /// E.g. the start of size 5: "5/5/5/5/5 x".
    std::string notation(const State& state) const {
        const auto at = [&](int row, int column) { return mark(state, row, column); };
        return board_notation(Size, Size, at, state.player == 0 ? 'x' : 'o') + (stolen(state) ? " swapped" : "");
    }

    std::string parse(const std::string& line, State& state) const {
        const BoardText board = parse_board(line, Size, Size);
        if (!board.error.empty()) return board.error;
        if (!board.rest.empty() && (board.rest != "swapped" || !Swap)) return "after the side to move comes 'swapped' or nothing";
        State read = initial();
        int count[2] = {0, 0};
        for (int cell = 0; cell < kCells; ++cell) {
            const char at = board.cells[static_cast<std::size_t>(cell)];
            if (at == '.') continue;
            const int player = at == 'x' ? 0 : 1;
            read.stones[player][cell / Size] |= 1u << cell % Size;
            ++count[player];
        }
        const int player = board.to_move == 'x' ? 0 : 1;
        const int taken = board.rest.empty() ? 0 : 1;  // the stolen stone is o's, and x has one less
        if (count[0] - count[1] + taken != player) {
            return "x has " + std::to_string(count[0]) + " stones and o " + std::to_string(count[1]) + ", so it is not this side's move";
        }
        if (taken == 1 && count[1] == 0) return "the first stone was swapped, yet o has none";
        read.player = static_cast<std::int8_t>(player);
        read.plies = static_cast<std::int16_t>(count[0] + count[1] + taken);
        for (int side = 0; side < 2; ++side) join_all(read, side);
        if (read.winner == player) return "the side to move has joined its edges already";
        if (read.winner >= 0 && !won_by_one_stone(read)) return "the edges were joined before the last move";
        state = read;
        return "";
    }

  private:
    static constexpr std::uint32_t kRow = (1u << Size) - 1;

    static bool can_swap(const State& state) { return Swap && state.plies == 1; }

    /// Takes the first stone off the board; returns the cell that mirrors it between the players' edges.
    static int take_first_stone(State& state) {
        int cell = 0;
        for (int row = 0; row < Size; ++row) {
            if (state.stones[0][row] != 0) cell = Size * std::countr_zero(state.stones[0][row]) + row;
            state.stones[0][row] = 0;
            state.joined[0][row] = 0;
        }
        return cell;
    }

    /// Whether the first stone was stolen: then player 0 has a stone less than plies say.
    static bool stolen(const State& state) {
        int stones = 0;
        for (int row = 0; row < Size; ++row) stones += std::popcount(state.stones[0][row]) + std::popcount(state.stones[1][row]);
        return stones != state.plies;
    }

    static bool at_first_edge(int player, int row, int column) { return player == 0 ? row == 0 : column == 0; }

    static std::uint32_t neighbours(const std::uint32_t* rows, int row) {
        std::uint32_t near = rows[row] << 1 | rows[row] >> 1;
        if (row > 0) near |= rows[row - 1] | rows[row - 1] >> 1;                // the stones above: (-1, 0) and (-1, +1)
        if (row + 1 < Size) near |= rows[row + 1] | rows[row + 1] << 1;         // and below: (+1, 0) and (+1, -1)
        return near & kRow;
    }

    /// Joins a new stone, and all that hangs on it, to its player's first edge where it can be.
    static void join(State& state, int player, int row, int column) {
        const std::uint32_t bit = 1u << column;
        if (!at_first_edge(player, row, column) && (neighbours(state.joined[player], row) & bit) == 0) return;
        state.joined[player][row] |= bit;
        grow(state, player, row);
    }

    static void join_all(State& state, int player) {
        for (int cell = 0; cell < Size; ++cell) {
            const int row = player == 0 ? 0 : cell;
            const int column = player == 0 ? cell : 0;
            if (((state.stones[player][row] >> column) & 1) != 0) join(state, player, row, column);
        }
    }

    /// Whether the winner's last stone can have made the win: without some stone of his the edges are apart.
    static bool won_by_one_stone(const State& won) {
        const int player = won.winner;
        for (int cell = 0; cell < kCells; ++cell) {
            const std::uint32_t bit = 1u << cell % Size;
            if ((won.stones[player][cell / Size] & bit) == 0) continue;
            State before{};
            before.winner = -1;
            for (int row = 0; row < Size; ++row) before.stones[player][row] = won.stones[player][row];
            before.stones[player][cell / Size] &= ~bit;
            join_all(before, player);
            if (before.winner < 0) return true;
        }
        return false;
    }

    /// Floods from a row of joined stones up and down until nothing is added.
    static void grow(State& state, int player, int row) {
        const std::uint32_t* stones = state.stones[player];
        std::uint32_t* joined = state.joined[player];
        int first = row;
        int last = row;
        while (first <= last) {
            int next_first = Size;
            int next_last = -1;
            for (int at = first > 0 ? first - 1 : 0; at <= (last + 1 < Size ? last + 1 : Size - 1); ++at) {
                const std::uint32_t added = neighbours(joined, at) & stones[at] & ~joined[at];
                if (added == 0) continue;
                joined[at] |= added;
                next_first = at < next_first ? at : next_first;
                next_last = at > next_last ? at : next_last;
            }
            first = next_first;
            last = next_last;
        }
        const bool reached = player == 0 ? joined[Size - 1] != 0 : touches_right(joined);
        if (reached) state.winner = static_cast<std::int8_t>(player);
    }

    static bool touches_right(const std::uint32_t* joined) {
        for (int row = 0; row < Size; ++row) {
            if ((joined[row] >> (Size - 1)) != 0) return true;
        }
        return false;
    }

    static std::string cell_text(int cell) {
        return std::string(1, static_cast<char>('a' + cell % Size)) + std::to_string(cell / Size + 1);
    }

    static char mark(const State& state, int row, int column) {
        if (((state.stones[0][row] >> column) & 1) != 0) return 'x';
        return ((state.stones[1][row] >> column) & 1) != 0 ? 'o' : '.';
    }
};

static_assert(Game<Hex<11>> && Game<Hex<11, true>>);

}  // namespace azq
