/// Connect four: 6 rows, 7 columns, four in line wins. Action ids and results as OpenSpiel's connect_four.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "azq/board_text.hpp"
#include "azq/game.hpp"

namespace azq {

/// Cell (row, column) is bit 8 * row + column, row 0 at the bottom; bit 7 of each row stays empty, so shifts never wrap.
struct ConnectFour {
    static constexpr const char* kName = "connect_four";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = 6;
    static constexpr int kColumns = 7;
    static constexpr int kNumActions = kColumns;  ///< Action c drops a disc into column c.
    static constexpr const char* kActionLayout = "columns";
    static constexpr int kMaxLegal = kColumns;
    static constexpr int kMaxLength = kRows * kColumns;
    static constexpr int kPlanes = 2;  ///< Own discs, the other's discs; row 0 is the bottom row.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 2;  ///< Identity, left-right mirror.

    struct State {
        std::uint64_t own;  ///< Discs of the player to move.
        std::uint64_t all;
    };

    static constexpr std::uint64_t kRow = 0x7f;
    static constexpr std::uint64_t kColumn = 0x0000010101010101;
    static constexpr std::uint64_t kBoard = kColumn * kRow;

    State initial() const { return State{0, 0}; }

    /// Whose turn it would be, also in terminal positions: player 0 moves on even plies.
    static int mover(const State& state) { return std::popcount(state.all) & 1; }

    static bool has_line(std::uint64_t discs) {
        for (const int step : {1, 7, 8, 9}) {
            const std::uint64_t pairs = discs & (discs >> step);
            if ((pairs & (pairs >> (2 * step))) != 0) return true;
        }
        return false;
    }

    int actor(const State& state) const {
        const bool over = state.all == kBoard || has_line(state.own ^ state.all);
        return over ? kTerminalPlayer : mover(state);
    }

    int legal(const State& state, std::uint16_t* actions) const {
        const std::uint64_t top = ~state.all >> (8 * (kRows - 1));
        int count = 0;
        for (int column = 0; column < kColumns; ++column) {
            actions[count] = static_cast<std::uint16_t>(column);
            count += static_cast<int>((top >> column) & 1);
        }
        return count;
    }

    void apply(State& state, int action) const {
        const std::uint64_t lowest_empty = ((state.all << 8) | kRow) & ~state.all;
        const std::uint64_t disc = lowest_empty & (kColumn << action);
        state.own ^= state.all;
        state.all |= disc;
    }

    float returns(const State& state, int player) const {
        if (!has_line(state.own ^ state.all)) return 0.0f;
        return player == mover(state) ? -1.0f : 1.0f;
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        const std::uint64_t other = state.own ^ state.all;
        const bool to_move = player == mover(state);
        const std::uint64_t first = squeeze(to_move ? state.own : other);
        const std::uint64_t second = squeeze(to_move ? other : state.own);
        const std::uint64_t low = first | (second << 42);
        const std::uint64_t high = second >> 22;
        for (int byte = 0; byte < 8; ++byte) packed[byte] = static_cast<std::uint8_t>(low >> (8 * byte));
        for (int byte = 0; byte < 3; ++byte) packed[8 + byte] = static_cast<std::uint8_t>(high >> (8 * byte));
    }

    int symmetric_action(int symmetry, int action) const { return symmetry == 0 ? action : kColumns - 1 - action; }

    int symmetric_cell(int symmetry, int cell) const {
        const int row = cell / kColumns;
        return row * kColumns + symmetric_action(symmetry, cell % kColumns);
    }

    std::string action_text(const State& state, int action) const {
        return std::string(mover(state) == 0 ? "x" : "o") + static_cast<char>('0' + action);
    }

    /// The board as OpenSpiel prints it: x is player 0, the top row first.
    std::string text(const State& state) const {
        const std::uint64_t first = mover(state) == 0 ? state.own : state.own ^ state.all;
        std::string board;
        for (int row = kRows - 1; row >= 0; --row) {
            for (int column = 0; column < kColumns; ++column) {
                const std::uint64_t cell = std::uint64_t{1} << (8 * row + column);
                board += (state.all & cell) == 0 ? '.' : ((first & cell) != 0 ? 'x' : 'o');
            }
            board += '\n';
        }
        return board;
    }

    /// E.g. the start: "7/7/7/7/7/7 x".
    std::string notation(const State& state) const {
        const std::uint64_t first = mover(state) == 0 ? state.own : state.own ^ state.all;
        const auto cell = [&](int row, int column) {
            const std::uint64_t bit = std::uint64_t{1} << (8 * (kRows - 1 - row) + column);
            return (state.all & bit) == 0 ? '.' : ((first & bit) != 0 ? 'x' : 'o');
        };
        return board_notation(kRows, kColumns, cell, mover(state) == 0 ? 'x' : 'o');
    }

    std::string parse(const std::string& text, State& state) const {
        const BoardText board = parse_board(text, kRows, kColumns);
        if (!board.error.empty()) return board.error;
        std::uint64_t discs[2] = {0, 0};
        for (int cell = 0; cell < kRows * kColumns; ++cell) {
            const char mark = board.cells[static_cast<std::size_t>(cell)];
            const int shift = 8 * (kRows - 1 - cell / kColumns) + cell % kColumns;
            if (mark != '.') discs[mark == 'o' ? 1 : 0] |= std::uint64_t{1} << shift;
        }
        const std::uint64_t all = discs[0] | discs[1];
        const int lead = std::popcount(discs[0]) - std::popcount(discs[1]);
        const int player = board.to_move == 'x' ? 0 : 1;
        if (!board.rest.empty()) return "nothing follows the side to move";
        if (((all >> 8) & ~all & kBoard) != 0) return "a disc hangs in the air";
        if (lead != player) return "x has moved " + std::to_string(lead) + " times more than o, so the other side is to move";
        if (has_line(discs[player])) return "the side to move has four in line already";
        state = State{discs[player], all};
        return "";
    }

  private:
    /// Drops the guard bit of each row: 48 bits to 42, row-major.
    static std::uint64_t squeeze(std::uint64_t discs) {
        std::uint64_t bits = 0;
        for (int row = 0; row < kRows; ++row) bits |= ((discs >> (8 * row)) & kRow) << (kColumns * row);
        return bits;
    }
};

static_assert(Game<ConnectFour>);

}  // namespace azq
