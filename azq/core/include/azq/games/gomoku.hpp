/// Gomoku: five in line wins. Action ids and results as OpenSpiel's gomoku; black is player 0 and moves first.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "azq/board_text.hpp"
#include "azq/game.hpp"
#include "azq/square.hpp"

namespace azq {

/// Cell (row, column) is action Size * row + column, row 0 at the top.
template <int Size>
struct Gomoku {
    static_assert(Size >= 5 && Size <= 32);

    static constexpr const char* kName = "gomoku";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = Size;
    static constexpr int kColumns = Size;
    static constexpr int kCells = Size * Size;
    static constexpr int kNumActions = kCells;
    static constexpr const char* kActionLayout = "cells";
    static constexpr int kMaxLegal = kCells;
    static constexpr int kMaxLength = kCells;
    static constexpr int kPlanes = 3;  ///< Own stones, the other's stones, the last move.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 8;
    static constexpr int kNoMove = -1;

    /// `exact_five`: six or more in line do not win.
    explicit Gomoku(bool exact_five = false) : exact_five_(exact_five) {}

    struct State {
        std::uint32_t stones[2][Size];  ///< A row each, bit = column; by player.
        std::int16_t plies;
        std::int16_t last;  ///< The cell played last, or kNoMove.
        bool won;           ///< By whoever moved last.
    };

    State initial() const {
        State state{};
        state.last = kNoMove;
        return state;
    }

    int actor(const State& state) const { return state.won || state.plies == kCells ? kTerminalPlayer : mover(state); }
    int mover(const State& state) const { return state.plies & 1; }

    int legal(const State& state, std::uint16_t* actions) const {
        int count = 0;
        for (int row = 0; row < Size; ++row) {
            std::uint32_t empty = ~(state.stones[0][row] | state.stones[1][row]) & kRow;
            for (; empty != 0; empty &= empty - 1) actions[count++] = static_cast<std::uint16_t>(Size * row + std::countr_zero(empty));
        }
        return count;
    }

    void apply(State& state, int action) const {
        const int row = action / Size;
        const int column = action % Size;
        std::uint32_t* stones = state.stones[mover(state)];
        stones[row] |= 1u << column;
        state.won = makes_five(stones, row, column);
        state.last = static_cast<std::int16_t>(action);
        ++state.plies;
    }

    float returns(const State& state, int player) const {
        if (!state.won) return 0.0f;
        return player == mover(state) ? -1.0f : 1.0f;
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        BitWriter writer(packed);
        write_planes(state, player, writer);
        writer.finish();
    }

    void write_planes(const State& state, int player, BitWriter& writer) const {
        for (int row = 0; row < Size; ++row) writer.put(state.stones[player][row], Size);
        for (int row = 0; row < Size; ++row) writer.put(state.stones[1 - player][row], Size);
        for (int row = 0; row < Size; ++row) {
            const bool here = state.last != kNoMove && state.last / Size == row;
            writer.put(here ? 1u << state.last % Size : 0u, Size);
        }
    }

    int symmetric_action(int symmetry, int action) const { return square_image<Size>(symmetry, action); }
    int symmetric_cell(int symmetry, int cell) const { return square_source<Size>(symmetry, cell); }

    std::string action_text(const State&, int action) const { return cell_text(action); }

    std::string text(const State& state) const {
        std::string board;
        for (int row = 0; row < Size; ++row) {
            for (int column = 0; column < Size; ++column) board += mark(state, row, column);
            board += '\n';
        }
        return board;
    }

    /// The board, the side to move and, once there is one, the last move: "9/9/.../9 x h8".
    std::string notation(const State& state) const {
        const auto at = [&](int row, int column) { return mark(state, row, column); };
        const std::string board = board_notation(Size, Size, at, mover(state) == 0 ? 'x' : 'o');
        return state.last == kNoMove ? board : board + ' ' + cell_text(state.last);
    }

    std::string parse(const std::string& line, State& state) const {
        const BoardText board = parse_board(line, Size, Size);
        if (!board.error.empty()) return board.error;
        State read = initial();
        int count[2] = {0, 0};
        for (int number = 0; number < kCells; ++number) {
            const char at = board.cells[static_cast<std::size_t>(number)];
            if (at == '.') continue;
            const int player = at == 'x' ? 0 : 1;
            read.stones[player][number / Size] |= 1u << number % Size;
            ++count[player];
        }
        const int player = board.to_move == 'x' ? 0 : 1;
        if (count[0] - count[1] != player) {
            return "x has " + std::to_string(count[0]) + " stones and o " + std::to_string(count[1]) + ", so it is not this side's move";
        }
        read.plies = static_cast<std::int16_t>(count[0] + count[1]);
        return finish(read, player, board.rest, state);
    }

  private:
    static constexpr std::uint32_t kRow = Size == 32 ? ~0u : (1u << Size % 32) - 1;

    static bool has(const std::uint32_t* stones, int row, int column) {
        return row >= 0 && row < Size && column >= 0 && column < Size && ((stones[row] >> column) & 1) != 0;
    }

    bool makes_five(const std::uint32_t* stones, int row, int column) const {
        constexpr int kSteps[4][2] = {{0, 1}, {1, 0}, {1, 1}, {1, -1}};
        for (const auto& step : kSteps) {
            int length = 1;
            for (int n = 1; has(stones, row + n * step[0], column + n * step[1]); ++n) ++length;
            for (int n = 1; has(stones, row - n * step[0], column - n * step[1]); ++n) ++length;
            if (length == 5 || (length > 5 && !exact_five_)) return true;
        }
        return false;
    }

    /// Whether a player has a winning line anywhere but through `except`.
    bool has_five(const State& state, int player, int except) const {
        State without = state;
        if (except != kNoMove) without.stones[player][except / Size] &= ~(1u << except % Size);
        for (int cell = 0; cell < kCells; ++cell) {
            const std::uint32_t* stones = without.stones[player];
            if (has(stones, cell / Size, cell % Size) && makes_five(stones, cell / Size, cell % Size)) return true;
        }
        return false;
    }

    /// Checks the last move and the lines of a position whose stones are read.
    std::string finish(State& read, int player, const std::string& last, State& state) const {
        if (read.plies > 0) {
            read.last = static_cast<std::int16_t>(cell_of(last));
            const bool own = read.last != kNoMove && has(read.stones[1 - player], read.last / Size, read.last % Size);
            if (!own) return "the last move '" + last + "' is no stone of the side that moved";
        } else if (!last.empty()) {
            return "nobody has moved, so there is no last move";
        }
        if (has_five(read, player, kNoMove)) return "the side to move has five in line already";
        if (has_five(read, 1 - player, read.last)) return "five in line were there before the last move";
        read.won = read.plies > 0 && makes_five(read.stones[1 - player], read.last / Size, read.last % Size);
        state = read;
        return "";
    }

    /// Column letter and row number, row 1 at the top.
    static std::string cell_text(int cell) {
        return std::string(1, static_cast<char>('a' + cell % Size)) + std::to_string(cell / Size + 1);
    }

    static int cell_of(const std::string& text) {
        for (int cell = 0; cell < kCells; ++cell) {
            if (cell_text(cell) == text) return cell;
        }
        return kNoMove;
    }

    static char mark(const State& state, int row, int column) {
        if (has(state.stones[0], row, column)) return 'x';
        return has(state.stones[1], row, column) ? 'o' : '.';
    }

    bool exact_five_;
};

static_assert(Game<Gomoku<15>>);

}  // namespace azq
