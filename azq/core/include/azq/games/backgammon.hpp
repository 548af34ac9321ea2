/// Backgammon for money without the cube, in micro-moves: one action moves one checker, and the actor stays until the dice are used.
///
/// Action 6 * (point - 1) + (die - 1), the bar being point 25; 150 passes. Legal are exactly the micro-moves that begin some
/// complete turn: as many dice as possible, the larger where only one can be played. Doubles go from the rear to the front.
/// Chance: where the game starts from (curricula), the opening throw, and 21 rolls. mover() of a chance node is who rolls.
#pragma once

#include <algorithm>
#include <string>

#include "azq/game.hpp"
#include "azq/games/backgammon/position_id.hpp"
#include "azq/square.hpp"

namespace azq {

namespace backgammon {
struct Fields;
}

struct Backgammon {
    static constexpr const char* kName = "backgammon";
    static constexpr int kNumPlayers = 2;
    static constexpr int kNumActions = 151;
    static constexpr int kPass = 150;
    static constexpr int kMaxLegal = 2 * backgammon::kCheckers + 1;
    static constexpr int kMaxLength = 4000;  ///< Of max_turns = 1000 turns, four micro-moves at most each.
    static constexpr int kPlanes = 6;        ///< By my points 1..24: I have one, two or more, three or more; the same of the other.
    static constexpr int kRows = 1;
    static constexpr int kColumns = 24;
    static constexpr int kNumScalars = 64;  ///< See observe.
    static constexpr int kNumSymmetries = 1;
    static constexpr int kMaxOutcomes = 30;
    static constexpr int kNumOutcomeTargets = 5;  ///< As gnubg: win, gammon or better, backgammon; lose gammon or worse, backgammon.

    enum class Scoring : std::uint8_t { kFull, kGammons, kWinLoss };
    enum class Start : std::uint8_t { kStandard, kRace, kBearOff };
    enum class Phase : std::int8_t { kPlace, kCoin, kThrow, kRoll, kMove };

    /// `uniform_opening`: a fair coin and an ordinary roll instead of one die each. `start`: 15 checkers of each player placed at
    /// random on his points 1..12 (race) or 1..6 (bear-off), one chance node each. After `max_turns` nobody has won.
    explicit Backgammon(Scoring scoring = Scoring::kFull, bool uniform_opening = false, Start start = Start::kStandard, int max_turns = 1000)
        : scoring_(scoring), uniform_opening_(uniform_opening), start_(start), max_turns_(max_turns) {
        constexpr float kWeights[3][6] = {{2.0f / 3, 1.0f / 3, 1.0f / 3, -1.0f / 3, -1.0f / 3, -1.0f / 3},
                                          {1.0f, 0.5f, 0.0f, -0.5f, 0.0f, -0.5f},
                                          {2.0f, 0.0f, 0.0f, 0.0f, 0.0f, -1.0f}};
        const float* row = kWeights[static_cast<int>(scoring)];
        for (int i = 0; i < kNumOutcomeTargets; ++i) kOutcomeWeights[i] = row[i];
        kOutcomeBias = row[5];
    }

    float kOutcomeWeights[kNumOutcomeTargets];
    float kOutcomeBias;

    struct State {
        backgammon::Points points[2];  ///< By player, each in his own numbering; [0] borne off, [25] on the bar.
        Phase phase;
        std::int8_t player;      ///< To move or to roll.
        std::int8_t dice[2];     ///< Rolled, the larger first.
        std::int8_t unplayed;    ///< Doubles: dice left. Else bit i: dice[i] is left.
        std::int8_t to_play;     ///< Micro-moves that this turn still has; 0: pass.
        std::int8_t last;        ///< Doubles: the source played last.
        std::int16_t turns;      ///< Rolls so far; while checkers are placed, the checkers placed.
    };

    State initial() const {
        State state{};
        state.last = backgammon::kBar;
        if (start_ == Start::kStandard) {
            for (auto& own : state.points) {
                own[24] = 2;
                own[13] = 5;
                own[8] = 3;
                own[6] = 5;
            }
            state.phase = uniform_opening_ ? Phase::kCoin : Phase::kThrow;
        }
        return state;
    }

    static int winner(const State& state) {
        for (int player = 0; player < 2; ++player) {
            if (state.points[player][backgammon::kOff] == backgammon::kCheckers) return player;
        }
        return -1;
    }

    int actor(const State& state) const {
        if (state.phase == Phase::kPlace) return kChancePlayer;
        if (winner(state) >= 0 || (state.phase == Phase::kRoll && state.turns >= max_turns_)) return kTerminalPlayer;
        return state.phase == Phase::kMove ? state.player : kChancePlayer;
    }
    int mover(const State& state) const { return state.player; }
    bool truncated(const State& state) const { return winner(state) < 0; }

    int chance(const State& state, Outcome* outcomes) const {
        int count = 0;
        const auto uniform = [&](int number) {
            for (; count < number; ++count) outcomes[count] = {static_cast<std::uint16_t>(count), 1.0f / static_cast<float>(number)};
            return count;
        };
        if (state.phase == Phase::kPlace) return uniform(start_ == Start::kRace ? 12 : 6);
        if (state.phase == Phase::kCoin) return uniform(2);
        if (state.phase == Phase::kThrow) return uniform(30);
        for (int larger = 1; larger <= 6; ++larger) {
            for (int smaller = 1; smaller <= larger; ++smaller) {
                outcomes[count] = {static_cast<std::uint16_t>(count), smaller == larger ? 1.0f / 36.0f : 2.0f / 36.0f};
                ++count;
            }
        }
        return count;
    }

    int legal(const State& state, std::uint16_t* actions) const {
        if (state.to_play == 0) {
            actions[0] = kPass;
            return 1;
        }
        backgammon::Mask from[2] = {0, 0};
        legal_sources(state, from);
        int count = 0;
        const bool twice = state.dice[0] != state.dice[1];
        for (backgammon::Mask any = from[0] | from[1]; any != 0; any &= any - 1) {
            const int source = std::countr_zero(any);
            if (twice && (from[1] >> source & 1) != 0) actions[count++] = action_of(source, state.dice[1]);  // the smaller die: ascending
            if ((from[0] >> source & 1) != 0) actions[count++] = action_of(source, state.dice[0]);
        }
        return count;
    }

    void apply(State& state, int number) const {
        switch (state.phase) {
            case Phase::kPlace: return place(state, number);
            case Phase::kCoin:
                state.player = static_cast<std::int8_t>(number);
                state.phase = Phase::kRoll;
                return;
            case Phase::kThrow: return throw_dice(state, number);
            case Phase::kRoll: return roll(state, number);
            case Phase::kMove: return move(state, number);
        }
    }

    float returns(const State& state, int player) const {
        const int who = winner(state);
        if (who < 0) return 0.0f;
        const float value = scoring_ == Scoring::kFull      ? static_cast<float>(points_won(state)) / 3.0f
                            : scoring_ == Scoring::kGammons ? static_cast<float>(std::min(points_won(state), 2)) / 2.0f
                                                            : 1.0f;
        return player == who ? value : -value;
    }

    void outcome_targets(const State& state, int player, float* targets) const {
        const int who = winner(state);
        const int points = who < 0 ? 0 : points_won(state);
        const bool won = who == player;
        const bool lost = who >= 0 && !won;
        const bool reached[kNumOutcomeTargets] = {won, won && points >= 2, won && points >= 3, lost && points >= 2, lost && points >= 3};
        for (int i = 0; i < kNumOutcomeTargets; ++i) targets[i] = reached[i] ? 1.0f : 0.0f;
    }

    /// Scalars (the network divides them by 16): checkers beyond the third on each point, mine and his (48); 4 * on the bar (2); borne
    /// off (2); 4 * unplayed dice of each value (6), 16 for a double, 4 * unplayed dice; pips / 10 (2); 16 for contact; last source.
    void observe(const State& state, int player, std::uint8_t* packed) const {
        const auto& own = state.points[player];
        const auto& other = state.points[1 - player];
        BitWriter writer(packed);
        const backgammon::Column columns[2] = {backgammon::Column::of(own), backgammon::Column::from_other_side(other)};
        for (const backgammon::Column& column : columns) {
            const backgammon::Mask several = column.at_least(2);
            writer.put(column.at_least(1) & ~several, 24);
            writer.put(several, 24);
            writer.put(column.at_least(3), 24);
        }
        std::uint8_t* at = writer.finish();
        for (const backgammon::Column& column : columns) {
            column.write_beyond_third(at);
            at += 24;
        }
        const auto put = [&](int value) { *at++ = static_cast<std::uint8_t>(value > 127 ? 127 : value); };
        for (const auto* points : {&own, &other}) put(4 * (*points)[backgammon::kBar]);
        for (const auto* points : {&own, &other}) put((*points)[backgammon::kOff]);
        const bool rolled = player == state.player && state.phase == Phase::kMove;
        for (int die = 1; die <= 6; ++die) put(rolled ? 4 * unplayed_of(state, die) : 0);
        const bool doubles = state.dice[0] == state.dice[1];
        put(rolled && doubles ? 16 : 0);
        put(rolled ? 4 * (doubles ? state.unplayed : std::popcount(static_cast<unsigned>(state.unplayed))) : 0);
        put(backgammon::pips(own) / 10);
        put(backgammon::pips(other) / 10);
        put(backgammon::contact(own, other) ? 16 : 0);
        put(rolled && doubles ? state.last : 0);
    }

    int symmetric_action(int, int action) const { return action; }
    int symmetric_cell(int, int cell) const { return cell; }

    std::string action_text(const State& state, int number) const;
    std::string text(const State& state) const;
    std::string notation(const State& state) const;
    std::string parse(const std::string& line, State& state) const;

  private:
    std::string parse_start(const backgammon::Fields& fields, State& read) const;
    std::string parse_roll(const backgammon::Fields& fields, State& read) const;
    std::string parse_turn(const backgammon::Fields& fields, State& read) const;

    static std::uint16_t action_of(int source, int die) { return static_cast<std::uint16_t>(6 * (source - 1) + die - 1); }

    static int points_won(const State& state) {
        const auto& loser = state.points[1 - winner(state)];
        if (loser[backgammon::kOff] > 0) return 1;
        for (int point = 19; point <= backgammon::kBar; ++point) {
            if (loser[point] > 0) return 3;
        }
        return 2;
    }

    static int unplayed_of(const State& state, int die) {
        if (state.dice[0] == state.dice[1]) return state.dice[0] == die ? state.unplayed : 0;
        return (state.dice[0] == die && (state.unplayed & 1) != 0) || (state.dice[1] == die && (state.unplayed & 2) != 0) ? 1 : 0;
    }

    /// Sources of dice[0] and dice[1] that begin a turn of to_play micro-moves.
    static void legal_sources(const State& state, backgammon::Mask from[2]) {
        const auto& own = state.points[state.player];
        const backgammon::Mask open = backgammon::open_points(state.points[1 - state.player]);
        if (state.dice[0] == state.dice[1]) {
            from[0] = double_sources(state, own, open);
            return;
        }
        if (state.to_play == 2) {
            from[0] = backgammon::sources_before(own, open, state.dice[0], state.dice[1]);
            from[1] = backgammon::sources_before(own, open, state.dice[1], state.dice[0]);
            return;
        }
        const backgammon::Mask mask = backgammon::occupied(own);
        if ((state.unplayed & 1) != 0) from[0] = backgammon::sources(mask, open, state.dice[0]);
        if ((state.unplayed & 2) != 0 && from[0] == 0) from[1] = backgammon::sources(mask, open, state.dice[1]);
    }

    static backgammon::Mask double_sources(const State& state, const backgammon::Points& own, backgammon::Mask open) {
        const int die = state.dice[0];
        backgammon::Mask kept = 0;
        backgammon::Mask from = backgammon::sources(backgammon::occupied(own), open, die) & ((backgammon::Mask{2} << state.last) - 1);
        if (state.to_play == 1) return from;
        for (; from != 0; from &= from - 1) {
            const int source = std::countr_zero(from);
            backgammon::Points next;
            std::copy(std::begin(own), std::end(own), std::begin(next));
            --next[source];
            ++next[source > die ? source - die : backgammon::kOff];
            if (backgammon::longest_double(next, open, die, state.to_play - 1, source) == state.to_play - 1) {
                kept |= backgammon::Mask{1} << source;
            }
        }
        return kept;
    }

    /// Micro-moves that the unplayed dice allow.
    static int playable(const State& state) {
        const auto& own = state.points[state.player];
        const backgammon::Mask open = backgammon::open_points(state.points[1 - state.player]);
        if (state.dice[0] == state.dice[1]) return backgammon::longest_double(own, open, state.dice[0], state.unplayed, state.last);
        if (state.unplayed == 3 && (backgammon::sources_before(own, open, state.dice[0], state.dice[1]) != 0 ||
                                    backgammon::sources_before(own, open, state.dice[1], state.dice[0]) != 0)) {
            return 2;
        }
        const backgammon::Mask mask = backgammon::occupied(own);
        for (int which = 0; which < 2; ++which) {
            if ((state.unplayed >> which & 1) != 0 && backgammon::sources(mask, open, state.dice[which]) != 0) return 1;
        }
        return 0;
    }

    void place(State& state, int point) const {
        ++state.points[state.turns / backgammon::kCheckers][point + 1];
        if (++state.turns < 2 * backgammon::kCheckers) return;
        state.turns = 0;
        state.phase = uniform_opening_ ? Phase::kCoin : Phase::kThrow;
    }

    /// Outcome 15 * starter + the pair of different dice.
    static void throw_dice(State& state, int number) {
        state.player = static_cast<std::int8_t>(number / 15);
        int pair = 0;
        for (int larger = 2; larger <= 6; ++larger) {
            for (int smaller = 1; smaller < larger; ++smaller, ++pair) {
                if (pair == number % 15) set_dice(state, larger, smaller);
            }
        }
    }

    static void roll(State& state, int number) {
        int pair = 0;
        for (int larger = 1; larger <= 6; ++larger) {
            for (int smaller = 1; smaller <= larger; ++smaller, ++pair) {
                if (pair == number) set_dice(state, larger, smaller);
            }
        }
    }

    static void set_dice(State& state, int larger, int smaller) {
        state.dice[0] = static_cast<std::int8_t>(larger);
        state.dice[1] = static_cast<std::int8_t>(smaller);
        state.unplayed = larger == smaller ? 4 : 3;
        state.last = backgammon::kBar;
        state.phase = Phase::kMove;
        state.to_play = static_cast<std::int8_t>(playable(state));
        ++state.turns;
    }

    static void move(State& state, int action) {
        if (action != kPass) {
            const int source = action / 6 + 1;
            const int die = action % 6 + 1;
            backgammon::move(state.points[state.player], state.points[1 - state.player], source, die);
            if (state.dice[0] == state.dice[1]) {
                --state.unplayed;
                state.last = static_cast<std::int8_t>(source);
            } else {
                state.unplayed = static_cast<std::int8_t>(state.unplayed & ~(die == state.dice[0] ? 1 : 2));
            }
            if (--state.to_play > 0 && winner(state) < 0) return;
        }
        if (winner(state) >= 0) return;
        state.player = static_cast<std::int8_t>(1 - state.player);
        state.phase = Phase::kRoll;
        state.dice[0] = state.dice[1] = 0;
        state.unplayed = 0;
        state.last = backgammon::kBar;
    }

    Scoring scoring_;
    bool uniform_opening_;
    Start start_;
    int max_turns_;
};

}  // namespace azq

#include "azq/games/backgammon/text.hpp"

static_assert(azq::Game<azq::Backgammon> && azq::HasChance<azq::Backgammon> && azq::HasOutcomeTargets<azq::Backgammon>);
