/// 2048 (Gabriele Cirulli, 2014), for one player. Actions, outcomes and chances as OpenSpiel's 2048.
///
/// A move slides all tiles to one side; two equal ones that meet become their sum, which is scored. Then chance places a 2 (90 %) or a 4
/// on an empty cell. Two tiles are placed before the first move. Nothing that moves: the game is over, and its score is the result.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "azq/game.hpp"
#include "azq/score.hpp"
#include "azq/square.hpp"

namespace azq {

struct TwentyFortyEight {
    static constexpr const char* kName = "2048";
    static constexpr int kNumPlayers = 1;
    static constexpr int kNumActions = 4;  ///< Up, right, down, left.
    static constexpr int kMaxLegal = 4;
    static constexpr int kMaxLength = 20000;  ///< Enough for a tile of 32768.
    static constexpr int kSize = 4;
    static constexpr int kCells = kSize * kSize;
    static constexpr int kTiles = 17;       ///< 2 to 131072, the largest that 16 cells can make.
    static constexpr int kPlanes = kTiles;  ///< By tile, the smallest first: where it lies.
    static constexpr int kRows = kSize;
    static constexpr int kColumns = kSize;
    static constexpr int kNumScalars = 0;
    static constexpr int kNumSymmetries = 8;
    static constexpr int kMaxOutcomes = 2 * kCells;  ///< 2 * cell places a 2, 2 * cell + 1 a 4.
    static constexpr ScoreScale kScores{0.0f, 4194304.0f, 256.0f};

    /// After `max_moves` moves the game ends with the score that it has.
    explicit TwentyFortyEight(int max_moves = kMaxLength) : max_moves_(max_moves) {}

    struct State {
        std::uint8_t cells[kCells];  ///< Row by row: 0, or the exponent of the tile's power of two.
        std::uint16_t moves;
        std::int8_t to_place;   ///< Tiles that chance places now.
        std::uint8_t movable;   ///< Bit a: action a moves something; none while tiles are placed.
    };

    State initial() const {
        State state{};
        state.to_place = 2;
        return state;
    }

    int actor(const State& state) const {
        if (state.to_place > 0) return kChancePlayer;
        return state.movable == 0 || state.moves >= max_moves_ ? kTerminalPlayer : 0;
    }
    int mover(const State&) const { return 0; }

    int legal(const State& state, std::uint16_t* actions) const {
        int count = 0;
        for (unsigned bits = state.movable; bits != 0; bits &= bits - 1) actions[count++] = static_cast<std::uint16_t>(std::countr_zero(bits));
        return count;
    }

    int chance(const State& state, Outcome* outcomes) const {
        int empty = 0;
        for (const std::uint8_t cell : state.cells) empty += cell == 0;
        int count = 0;
        for (int cell = 0; cell < kCells; ++cell) {
            if (state.cells[cell] != 0) continue;
            outcomes[count++] = {static_cast<std::uint16_t>(2 * cell), 0.9f / static_cast<float>(empty)};
            outcomes[count++] = {static_cast<std::uint16_t>(2 * cell + 1), 0.1f / static_cast<float>(empty)};
        }
        return count;
    }

    void apply(State& state, int number) const {
        if (state.to_place == 0) return slide(state, number);
        state.cells[number / 2] = static_cast<std::uint8_t>(1 + number % 2);
        if (--state.to_place == 0) state.movable = movable(state);
    }

    /// What was scored so far. The tiles and the number of moves say it: a tile of 2^e that was put together of 2s has brought
    /// (e - 1) * 2^e, and each 4 that was placed whole 4 less.
    std::int32_t score(const State& state) const {
        std::int32_t sum = 0;
        std::int32_t all_of_twos = 0;
        for (const std::uint8_t cell : state.cells) {
            if (cell == 0) continue;
            sum += 1 << cell;
            all_of_twos += (cell - 1) << cell;
        }
        return all_of_twos - 2 * (sum - 2 * placed(state));
    }

    float returns(const State& state, int) const { return kScores.value(static_cast<float>(score(state))); }

    void observe(const State& state, int, std::uint8_t* packed) const {
        std::uint16_t planes[kTiles] = {};
        for (int cell = 0; cell < kCells; ++cell) {
            if (state.cells[cell] > 0) planes[state.cells[cell] - 1] = static_cast<std::uint16_t>(planes[state.cells[cell] - 1] | 1u << cell);
        }
        BitWriter writer(packed);
        for (const std::uint16_t plane : planes) writer.put(plane, kCells);
        writer.finish();
    }

    int symmetric_action(int symmetry, int action) const {
        const int from = square_image<kSize>(symmetry, kInner);
        const int to = square_image<kSize>(symmetry, kInner + kSteps[action]);
        int image = 0;
        while (kSteps[image] != to - from) ++image;
        return image;
    }
    int symmetric_cell(int symmetry, int cell) const { return square_source<kSize>(symmetry, cell); }

    std::string action_text(const State& state, int number) const {
        constexpr const char* kNames[] = {"up", "right", "down", "left"};
        if (state.to_place == 0) return kNames[number];
        return cell_text(number / 2) + (number % 2 == 0 ? "=2" : "=4");
    }

    std::string text(const State& state) const {
        std::string board;
        for (int cell = 0; cell < kCells; ++cell) {
            const std::string tile = tile_text(state.cells[cell]);
            board += std::string(7 - tile.size(), ' ') + tile + (cell % kSize == kSize - 1 ? "\n" : "");
        }
        return board + "score " + std::to_string(score(state)) + "\n";
    }

    /// E.g. "2,.,.,4/.,.,.,./.,.,2,./.,.,.,. 2 0": rows from the top, moves made, tiles that chance places now.
    std::string notation(const State& state) const {
        std::string line;
        for (int cell = 0; cell < kCells; ++cell) {
            line += tile_text(state.cells[cell]) + (cell % kSize < kSize - 1 ? "," : (cell < kCells - 1 ? "/" : " "));
        }
        return line + std::to_string(state.moves) + " " + std::to_string(state.to_place);
    }

    std::string parse(const std::string& line, State& state) const {
        State read{};
        std::size_t at = 0;
        for (int cell = 0; cell < kCells; ++cell) {
            const char end = cell == kCells - 1 ? ' ' : (cell % kSize == kSize - 1 ? '/' : ',');
            const std::string tile = upto(line, at, end);
            while (read.cells[cell] <= kTiles && tile_text(read.cells[cell]) != tile) ++read.cells[cell];
            if (read.cells[cell] > kTiles) return cell_text(cell) + " is '" + tile + "'; a cell is . or 2, 4, 8 to 131072, and 16 of them are written 4,4/4,4";
        }
        const int moves = number_of(upto(line, at, ' '));
        const int to_place = number_of(line.substr(at));
        if (moves < 0 || moves > kMaxLength) return "after the board come the moves made, 0 to " + std::to_string(kMaxLength);
        if (to_place < 0 || to_place > (moves == 0 ? 2 : 1)) return "the last number is that of the tiles to be placed: 0, 1 or, before the first move, 2";
        read.moves = static_cast<std::uint16_t>(moves);
        read.to_place = static_cast<std::int8_t>(to_place);
        const std::string broken = broken_rule(read);
        if (!broken.empty()) return broken;
        if (to_place == 0) read.movable = movable(read);
        state = read;
        return "";
    }

  private:
    static constexpr int kSteps[kNumActions] = {-kSize, 1, kSize, -1};  ///< From a cell to the next one that way.
    static constexpr int kInner = kSize + 1;                            ///< A cell with neighbours on all sides.

    static int placed(const State& state) { return state.moves + 2 - state.to_place; }

    /// The cell at a depth behind the side that an action slides to, in one of its four lines.
    static int cell_at(int action, int line, int depth) {
        const int along = action == 1 || action == 2 ? kSize - 1 - depth : depth;
        return action % 2 == 0 ? kSize * along + line : kSize * line + along;
    }

    static bool merges(std::uint8_t one, std::uint8_t other) { return one == other && one < kTiles; }

    static std::uint8_t movable(const State& state) {
        unsigned bits = 0;
        for (int action = 0; action < kNumActions; ++action) {
            for (int line = 0; line < kSize; ++line) {
                for (int depth = 1; depth < kSize; ++depth) {
                    const std::uint8_t tile = state.cells[cell_at(action, line, depth)];
                    const std::uint8_t next = state.cells[cell_at(action, line, depth - 1)];
                    if (tile != 0 && (next == 0 || merges(next, tile))) bits |= 1u << action;
                }
            }
        }
        return static_cast<std::uint8_t>(bits);
    }

    /// Tiles near the side go first, and what was put together does not join again.
    static void slide(State& state, int action) {
        for (int line = 0; line < kSize; ++line) {
            std::uint8_t slid[kSize] = {};
            int filled = 0;
            bool open = false;  // the last one may still join
            for (int depth = 0; depth < kSize; ++depth) {
                const std::uint8_t tile = state.cells[cell_at(action, line, depth)];
                if (tile == 0) continue;
                open = open && merges(slid[filled - 1], tile);
                if (open) {
                    ++slid[filled - 1];
                    open = false;
                } else {
                    slid[filled++] = tile;
                    open = true;
                }
            }
            for (int depth = 0; depth < kSize; ++depth) state.cells[cell_at(action, line, depth)] = slid[depth];
        }
        ++state.moves;
        state.to_place = 1;
        state.movable = 0;
    }

    static std::string tile_text(std::uint8_t cell) { return cell == 0 ? "." : std::to_string(1 << cell); }
    static std::string cell_text(int cell) { return std::string(1, static_cast<char>('a' + cell % kSize)) + std::to_string(cell / kSize + 1); }

    static std::string upto(const std::string& line, std::size_t& at, char end) {
        const std::size_t stop = line.find(end, at);
        const std::string part = line.substr(at < line.size() ? at : line.size(), stop == std::string::npos ? stop : stop - at);
        at = stop == std::string::npos ? line.size() : stop + 1;
        return part;
    }

    /// -1: none.
    static int number_of(const std::string& digits) {
        int number = digits.empty() || digits.size() > 6 ? -1 : 0;
        for (std::size_t i = 0; i < digits.size() && number >= 0; ++i) {
            number = digits[i] >= '0' && digits[i] <= '9' ? 10 * number + digits[i] - '0' : -1;
        }
        return number;
    }

    static std::string broken_rule(const State& state) {
        std::int32_t sum = 0;
        int tiles = 0;
        for (const std::uint8_t cell : state.cells) {
            sum += cell == 0 ? 0 : 1 << cell;
            tiles += cell != 0;
        }
        const int count = placed(state);
        if (sum < 2 * count || sum > 4 * count) {
            return "tiles that sum to " + std::to_string(sum) + " are not those of " + std::to_string(count) + " that were placed, 2 or 4 each";
        }
        if (tiles > count) return "there are more tiles than were placed";
        if (state.to_place > 0 && tiles == kCells) return "there is no empty cell to place a tile on";
        if (state.moves == 0 && tiles != count) return "before the first move nothing joins";
        return "";
    }

    int max_moves_;
};

static_assert(Game<TwentyFortyEight> && HasChance<TwentyFortyEight> && HasScores<TwentyFortyEight>);

}  // namespace azq
