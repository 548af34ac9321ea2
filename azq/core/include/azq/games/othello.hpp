/// Othello on 8 x 8 or 6 x 6 cells. Action ids and results as OpenSpiel's othello; black is player 0 and moves first.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "azq/board_text.hpp"
#include "azq/game.hpp"
#include "azq/square.hpp"

namespace azq {

/// Cell (row, column) is bit Size * row + column, row 0 at the top.
template <int Size>
struct Othello {
    static_assert(Size == 6 || Size == 8);

    static constexpr const char* kName = "othello";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = Size;
    static constexpr int kColumns = Size;
    static constexpr int kCells = Size * Size;
    static constexpr int kPass = kCells;
    static constexpr int kNumActions = kCells + 1;  ///< Action c places a disc on cell c; the last one passes.
    static constexpr const char* kActionLayout = "cells";
    static constexpr int kMaxLegal = kCells - 4;
    static constexpr int kMaxLength = 2 * (kCells - 4);  ///< No two passes in a row, and no game ends with one.
    static constexpr int kPlanes = 3;                    ///< Own discs, the other's discs, where the player to move may place.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 8;  ///< Quarter turns 0..3, then the same after a left-right mirror.
    static constexpr int kFirstPass = 12;     ///< Discs on the board when a player can first be left without a move, by enumeration.

    using Bits = std::uint64_t;

    struct State {
        Bits own;  ///< Discs of the player to move.
        Bits other;
        std::int8_t player;  ///< To move; the parity of the discs does not say, since players pass.
        bool over;
    };

    State initial() const {
        constexpr int kMiddle = Size / 2;
        const Bits white = cell(kMiddle - 1, kMiddle - 1) | cell(kMiddle, kMiddle);
        const Bits black = cell(kMiddle - 1, kMiddle) | cell(kMiddle, kMiddle - 1);
        return State{black, white, 0, false};
    }

    int actor(const State& state) const { return state.over ? kTerminalPlayer : state.player; }
    int mover(const State& state) const { return state.player; }

    int legal(const State& state, std::uint16_t* actions) const {
        Bits places = placements(state.own, state.other);
        int count = 0;
        for (; places != 0; places &= places - 1) actions[count++] = static_cast<std::uint16_t>(std::countr_zero(places));
        if (count == 0) actions[count++] = kPass;
        return count;
    }

    void apply(State& state, int action) const {
        if (action != kPass) {
            const Bits placed = Bits{1} << action;
            const Bits flipped = flips(placed, state.own, state.other);
            state.own |= placed | flipped;
            state.other &= ~flipped;
        }
        const Bits mine = state.own;
        state.own = state.other;
        state.other = mine;
        state.player = static_cast<std::int8_t>(1 - state.player);
        state.over = placements(state.own, state.other) == 0 && placements(state.other, state.own) == 0;
    }

    float returns(const State& state, int player) const {
        const int lead = disc_lead(state, player);
        return lead > 0 ? 1.0f : (lead < 0 ? -1.0f : 0.0f);
    }

    float margin(const State& state, int player) const {
        return static_cast<float>(disc_lead(state, player)) / static_cast<float>(kCells);
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        const bool to_move = player == state.player;
        BitWriter writer(packed);
        writer.put(to_move ? state.own : state.other, kCells);
        writer.put(to_move ? state.other : state.own, kCells);
        writer.put(placements(state.own, state.other), kCells);
        writer.finish();
    }

    int symmetric_action(int symmetry, int action) const { return action == kPass ? kPass : square_image<Size>(symmetry, action); }
    int symmetric_cell(int symmetry, int cell) const { return square_source<Size>(symmetry, cell); }

    /// As OpenSpiel: the column's letter and the row's number, row 1 at the top.
    std::string action_text(const State&, int action) const {
        if (action == kPass) return "pass";
        return std::string(1, static_cast<char>('a' + action % Size)) + std::to_string(action / Size + 1);
    }

    std::string text(const State& state) const {
        std::string board;
        for (int row = 0; row < Size; ++row) {
            for (int column = 0; column < Size; ++column) board += mark(state, row, column);
            board += '\n';
        }
        return board;
    }

    /// E.g. the start: "8/8/8/3ox3/3xo3/8/8/8 x"; x is black.
    std::string notation(const State& state) const {
        const auto at = [&](int row, int column) { return mark(state, row, column); };
        return board_notation(Size, Size, at, state.player == 0 ? 'x' : 'o');
    }

    std::string parse(const std::string& line, State& state) const {
        const BoardText board = parse_board(line, Size, Size);
        if (!board.error.empty()) return board.error;
        if (!board.rest.empty()) return "nothing follows the side to move";
        Bits discs[2] = {0, 0};
        for (int number = 0; number < kCells; ++number) {
            const char at = board.cells[static_cast<std::size_t>(number)];
            if (at != '.') discs[at == 'x' ? 0 : 1] |= Bits{1} << number;
        }
        const Bits middle = initial().own | initial().other;
        if ((middle & ~(discs[0] | discs[1])) != 0) return "the four cells in the middle are never empty";
        if ((discs[0] | discs[1]) != connected_to(middle, discs[0] | discs[1])) return "a disc stands apart from all others";
        const int player = board.to_move == 'x' ? 0 : 1;
        const int count = std::popcount(discs[0] | discs[1]);
        if (count == 4 && discs[0] != initial().own) return "these four discs are not how a game begins";
        if (count < kFirstPass && count % 2 != player) return "with " + std::to_string(count) + " discs it is not this side's move";
        const bool over = placements(discs[0], discs[1]) == 0 && placements(discs[1], discs[0]) == 0;
        state = State{discs[player], discs[1 - player], static_cast<std::int8_t>(player), over};
        return "";
    }

  private:
    static constexpr Bits kBoard = Size == 8 ? ~Bits{0} : (Bits{1} << kCells % 64) - 1;
    static constexpr Bits cell(int row, int column) { return Bits{1} << (Size * row + column); }

    static constexpr Bits column_bits(int column) {
        Bits bits = 0;
        for (int row = 0; row < Size; ++row) bits |= cell(row, column);
        return bits;
    }

    static constexpr Bits kNotFirst = kBoard & ~column_bits(0);
    static constexpr Bits kNotLast = kBoard & ~column_bits(Size - 1);

    /// One step in direction 0..7; what would leave the board is gone.
    template <int Direction>
    static Bits step(Bits bits) {
        if constexpr (Direction == 0) return (bits & kNotLast) << 1;
        if constexpr (Direction == 1) return (bits & kNotFirst) >> 1;
        if constexpr (Direction == 2) return bits << Size & kBoard;
        if constexpr (Direction == 3) return bits >> Size;
        if constexpr (Direction == 4) return (bits & kNotLast) << (Size + 1) & kBoard;
        if constexpr (Direction == 5) return (bits & kNotFirst) >> (Size + 1);
        if constexpr (Direction == 6) return (bits & kNotFirst) << (Size - 1) & kBoard;
        if constexpr (Direction == 7) return (bits & kNotLast) >> (Size - 1);
    }

    template <int Direction>
    static Bits placements_along(Bits own, Bits other) {
        Bits run = step<Direction>(own) & other;
        for (int length = 1; length < Size - 2; ++length) run |= step<Direction>(run) & other;
        return step<Direction>(run);
    }

    static Bits placements(Bits own, Bits other) {
        const Bits ends = placements_along<0>(own, other) | placements_along<1>(own, other) | placements_along<2>(own, other) |
                          placements_along<3>(own, other) | placements_along<4>(own, other) | placements_along<5>(own, other) |
                          placements_along<6>(own, other) | placements_along<7>(own, other);
        return ends & ~(own | other);
    }

    template <int Direction>
    static Bits flips_along(Bits placed, Bits own, Bits other) {
        Bits run = 0;
        Bits front = step<Direction>(placed);
        for (; (front & other) != 0; front = step<Direction>(front)) run |= front;
        return (front & own) != 0 ? run : 0;
    }

    static Bits flips(Bits placed, Bits own, Bits other) {
        return flips_along<0>(placed, own, other) | flips_along<1>(placed, own, other) | flips_along<2>(placed, own, other) |
               flips_along<3>(placed, own, other) | flips_along<4>(placed, own, other) | flips_along<5>(placed, own, other) |
               flips_along<6>(placed, own, other) | flips_along<7>(placed, own, other);
    }

    static Bits connected_to(Bits seed, Bits discs) {
        for (;;) {
            const Bits grown = (seed | step<0>(seed) | step<1>(seed) | step<2>(seed) | step<3>(seed) | step<4>(seed) | step<5>(seed) |
                                step<6>(seed) | step<7>(seed)) & discs;
            if (grown == seed) return seed;
            seed = grown;
        }
    }

    static int disc_lead(const State& state, int player) {
        const int lead = std::popcount(state.own) - std::popcount(state.other);
        return player == state.player ? lead : -lead;
    }

    static char mark(const State& state, int row, int column) {
        const Bits bit = cell(row, column);
        if (((state.own | state.other) & bit) == 0) return '.';
        return ((state.own & bit) != 0) == (state.player == 0) ? 'x' : 'o';
    }
};

static_assert(Game<Othello<8>> && HasMargin<Othello<8>>);

}  // namespace azq
