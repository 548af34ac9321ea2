/// Gomoku with the opening rule swap2 of the Gomoku world championships: nobody is given the first move's advantage.
///
/// Player 0 places black, white, black. Player 1 takes a colour, or places white and black and lets player 0 take one. Stones
/// alternate in colour from the first to the last, so the board is that of plain gomoku; only whose the colours are is open.
#pragma once

#include "azq/games/gomoku.hpp"

namespace azq {

template <int Size>
struct GomokuSwap2 {
    using Board = Gomoku<Size>;

    static constexpr const char* kName = "gomoku";
    static constexpr int kNumPlayers = 2;
    static constexpr int kRows = Size;
    static constexpr int kColumns = Size;
    static constexpr int kTakeBlack = Board::kCells;
    static constexpr int kTakeWhite = Board::kCells + 1;
    static constexpr int kPlaceMore = Board::kCells + 2;  ///< Two stones, and the choice is player 0's.
    static constexpr int kNumActions = Board::kCells + 3;
    static constexpr const char* kActionLayout = "cells";
    static constexpr int kMaxLegal = Board::kCells;
    static constexpr int kMaxLength = Board::kCells + 2;
    static constexpr int kPlanes = Board::kPlanes + 3;  ///< And all ones: colours are open, a colour is to be chosen, the next stone is black.
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 8;
    static constexpr int kOpening = 3;   ///< Stones before the first choice.
    static constexpr int kExtended = 5;  ///< And before the second.

    explicit GomokuSwap2(bool exact_five = false) : board_(exact_five) {}

    enum class Phase : std::uint8_t { kPlace, kChoose, kPlay };

    struct State {
        typename Board::State board;  ///< Players of the board are colours: 0 is black.
        std::int8_t black;            ///< The player who has black; while colours are open that is player 0.
        Phase phase;
    };

    State initial() const { return State{board_.initial(), 0, Phase::kPlace}; }

    int actor(const State& state) const { return board_.actor(state.board) == kTerminalPlayer ? kTerminalPlayer : mover(state); }

    int mover(const State& state) const {
        if (state.phase == Phase::kPlay) return owner(state, board_.mover(state.board));
        const bool first = state.board.plies < kOpening || state.board.plies == kExtended;
        return first ? 0 : 1;
    }

    int legal(const State& state, std::uint16_t* actions) const {
        if (state.phase != Phase::kChoose) return board_.legal(state.board, actions);
        actions[0] = kTakeBlack;
        actions[1] = kTakeWhite;
        actions[2] = kPlaceMore;
        return state.board.plies == kOpening ? 3 : 2;
    }

    void apply(State& state, int action) const {
        if (action == kPlaceMore) {
            state.phase = Phase::kPlace;
        } else if (action >= Board::kCells) {
            state.black = static_cast<std::int8_t>(action == kTakeBlack ? mover(state) : 1 - mover(state));
            state.phase = Phase::kPlay;
        } else {
            board_.apply(state.board, action);
            if (state.phase == Phase::kPlace && (state.board.plies == kOpening || state.board.plies == kExtended)) state.phase = Phase::kChoose;
        }
    }

    float returns(const State& state, int player) const { return board_.returns(state.board, colour(state, player)); }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        BitWriter writer(packed);
        board_.write_planes(state.board, colour(state, player), writer);
        put_plane(writer, state.phase != Phase::kPlay);
        put_plane(writer, state.phase == Phase::kChoose);
        put_plane(writer, board_.mover(state.board) == 0);
        writer.finish();
    }

    int symmetric_action(int symmetry, int action) const { return action < Board::kCells ? board_.symmetric_action(symmetry, action) : action; }
    int symmetric_cell(int symmetry, int cell) const { return board_.symmetric_cell(symmetry, cell); }

    std::string action_text(const State& state, int action) const {
        if (action < Board::kCells) return board_.action_text(state.board, action);
        return action == kTakeBlack ? "black" : (action == kTakeWhite ? "white" : "more");
    }

    std::string text(const State& state) const { return board_.text(state.board) + status(state) + '\n'; }

    /// The line of plain gomoku, then whose the colours are: "9/9/.../9 o c3 choose", "... x h8 black=1".
    std::string notation(const State& state) const { return board_.notation(state.board) + ' ' + status(state); }

    std::string parse(const std::string& line, State& state) const {
        const std::size_t space = line.rfind(' ');
        const std::string word = space == std::string::npos ? "" : line.substr(space + 1);
        if (word != "place" && word != "choose" && word != "black=0" && word != "black=1") {
            return "a position of swap2 ends with place, choose, black=0 or black=1";
        }
        State read = initial();
        const std::string broken = board_.parse(space == std::string::npos ? "" : line.substr(0, space), read.board);
        if (!broken.empty()) return broken;
        const int stones = read.board.plies;
        if (word == "place" && stones >= kExtended) return "after five stones the colours are chosen";
        if (word == "choose" && stones != kOpening && stones != kExtended) return "a colour is chosen after three stones or five";
        if (word[0] == 'b' && stones < kOpening) return "colours are chosen after three stones";
        read.phase = word == "place" ? Phase::kPlace : (word == "choose" ? Phase::kChoose : Phase::kPlay);
        if (read.phase == Phase::kPlay) read.black = static_cast<std::int8_t>(word.back() - '0');
        state = read;
        return "";
    }

  private:
    static int colour(const State& state, int player) { return player == state.black ? 0 : 1; }
    static int owner(const State& state, int colour) { return colour == 0 ? state.black : 1 - state.black; }

    static void put_plane(BitWriter& writer, bool ones) {
        for (int row = 0; row < Size; ++row) writer.put(ones ? ~0u >> (32 - Size) : 0u, Size);
    }

    static std::string status(const State& state) {
        if (state.phase == Phase::kPlay) return state.black == 0 ? "black=0" : "black=1";
        return state.phase == Phase::kChoose ? "choose" : "place";
    }

    Board board_;
};

static_assert(Game<GomokuSwap2<15>>);

}  // namespace azq
