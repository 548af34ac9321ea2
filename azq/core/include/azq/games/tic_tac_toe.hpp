/// Tic-tac-toe. Action ids and results as OpenSpiel's tic_tac_toe.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "azq/board_text.hpp"
#include "azq/game.hpp"

namespace azq {

/// Cell (row, column) is bit 3 * row + column.
struct TicTacToe {
    static constexpr const char* kName = "tic_tac_toe";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = 3;
    static constexpr int kColumns = 3;
    static constexpr int kNumActions = 9;  ///< Action a marks cell a.
    static constexpr const char* kActionLayout = "cells";
    static constexpr int kMaxLegal = 9;
    static constexpr int kMaxLength = 9;
    static constexpr int kPlanes = 2;  ///< Own marks, the other's marks.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 8;  ///< Quarter turns 0..3, then the same after a left-right mirror.

    struct State {
        std::uint16_t own;  ///< Marks of the player to move.
        std::uint16_t all;
    };

    static constexpr std::uint16_t kBoard = 0x1ff;

    State initial() const { return State{0, 0}; }

    /// Whose turn it would be, also in terminal positions: player 0 moves on even plies.
    static int mover(const State& state) { return std::popcount(state.all) & 1; }

    static bool has_line(unsigned marks) {
        for (const unsigned line : {0007u, 0070u, 0700u, 0111u, 0222u, 0444u, 0421u, 0124u}) {
            if ((marks & line) == line) return true;
        }
        return false;
    }

    int actor(const State& state) const {
        const bool over = state.all == kBoard || has_line(state.own ^ state.all);
        return over ? kTerminalPlayer : mover(state);
    }

    int legal(const State& state, std::uint16_t* actions) const {
        int count = 0;
        for (int cell = 0; cell < kNumActions; ++cell) {
            actions[count] = static_cast<std::uint16_t>(cell);
            count += static_cast<int>((~state.all >> cell) & 1);
        }
        return count;
    }

    void apply(State& state, int action) const {
        const auto mark = static_cast<std::uint16_t>(1u << action);
        state.own = static_cast<std::uint16_t>(state.own ^ state.all);
        state.all = static_cast<std::uint16_t>(state.all | mark);
    }

    float returns(const State& state, int player) const {
        if (!has_line(state.own ^ state.all)) return 0.0f;
        return player == mover(state) ? -1.0f : 1.0f;
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        const unsigned other = state.own ^ state.all;
        const bool to_move = player == mover(state);
        const unsigned bits = (to_move ? state.own : other) | ((to_move ? other : state.own) << 9);
        for (int byte = 0; byte < 3; ++byte) packed[byte] = static_cast<std::uint8_t>(bits >> (8 * byte));
    }

    int symmetric_action(int symmetry, int action) const {
        int row = action / 3;
        int column = action % 3;
        if (symmetry >= 4) column = 2 - column;
        for (int turn = 0; turn < symmetry % 4; ++turn) {
            const int turned = column;
            column = 2 - row;
            row = turned;
        }
        return 3 * row + column;
    }

    int symmetric_cell(int symmetry, int cell) const {
        for (int source = 0; source < kNumActions; ++source) {
            if (symmetric_action(symmetry, source) == cell) return source;
        }
        return cell;
    }

    std::string action_text(const State& state, int action) const {
        const char mark = mover(state) == 0 ? 'x' : 'o';
        return {mark, '(', static_cast<char>('0' + action / 3), ',', static_cast<char>('0' + action % 3), ')'};
    }

    /// The board as OpenSpiel prints it: x is player 0.
    std::string text(const State& state) const {
        const unsigned first = mover(state) == 0 ? state.own : state.own ^ state.all;
        std::string board;
        for (int cell = 0; cell < kNumActions; ++cell) {
            const unsigned bit = 1u << cell;
            board += (state.all & bit) == 0 ? '.' : ((first & bit) != 0 ? 'x' : 'o');
            if (cell % 3 == 2) board += '\n';
        }
        return board;
    }

    /// E.g. the start: "3/3/3 x".
    std::string notation(const State& state) const {
        const std::string board = text(state);
        const auto cell = [&](int row, int column) { return board[static_cast<std::size_t>(4 * row + column)]; };
        return board_notation(kRows, kColumns, cell, mover(state) == 0 ? 'x' : 'o');
    }

    std::string parse(const std::string& text, State& state) const {
        const BoardText board = parse_board(text, kRows, kColumns);
        if (!board.error.empty()) return board.error;
        unsigned marks[2] = {0, 0};
        for (unsigned cell = 0; cell < kNumActions; ++cell) {
            const char mark = board.cells[cell];
            if (mark != '.') marks[mark == 'o' ? 1 : 0] |= 1u << cell;
        }
        const int lead = std::popcount(marks[0]) - std::popcount(marks[1]);
        const int player = board.to_move == 'x' ? 0 : 1;
        if (!board.rest.empty()) return "nothing follows the side to move";
        if (lead != player) return "x has moved " + std::to_string(lead) + " times more than o, so the other side is to move";
        if (has_line(marks[player])) return "the side to move has three in line already";
        state = State{static_cast<std::uint16_t>(marks[player]), static_cast<std::uint16_t>(marks[0] | marks[1])};
        return "";
    }
};

static_assert(Game<TicTacToe>);

}  // namespace azq
