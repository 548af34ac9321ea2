/// Backgammon in words: boards, moves, and positions on one line.
#pragma once

#include <string>

#include "azq/games/backgammon.hpp"

namespace azq {

inline std::string Backgammon::action_text(const State& state, int number) const {
    const std::string who = state.player == 0 ? "x" : "o";
    if (state.phase == Phase::kPlace) {
        return (state.turns < backgammon::kCheckers ? "x on " : "o on ") + std::to_string(number + 1);
    }
    if (state.phase == Phase::kCoin) return number == 0 ? "x starts" : "o starts";
    if (state.phase == Phase::kThrow || state.phase == Phase::kRoll) {
        State after = state;
        apply(after, number);
        const std::string dice = std::to_string(after.dice[0]) + std::to_string(after.dice[1]);
        return (after.player == 0 ? "x rolls " : "o rolls ") + dice;
    }
    if (number == kPass) return who + " passes";
    const int source = number / 6 + 1;
    const int target = source - (number % 6 + 1);
    const bool hits = target > 0 && state.points[1 - state.player][25 - target] == 1;
    return who + " " + (source == backgammon::kBar ? "bar" : std::to_string(source)) + "/" + (target <= 0 ? "off" : std::to_string(target)) +
           (hits ? "*" : "");
}

/// Each player's checkers in his own numbering, from the rear, and the dice.
inline std::string Backgammon::text(const State& state) const {
    std::string lines;
    for (int player = 0; player < 2; ++player) {
        const auto& own = state.points[player];
        lines += player == 0 ? "x:" : "o:";
        if (own[backgammon::kBar] > 0) lines += " bar:" + std::to_string(own[backgammon::kBar]);
        for (int point = 24; point >= 1; --point) {
            if (own[point] > 0) lines += " " + std::to_string(point) + ":" + std::to_string(own[point]);
        }
        lines += " off:" + std::to_string(own[backgammon::kOff]) + "\n";
    }
    if (winner(state) >= 0) return lines + (winner(state) == 0 ? "x" : "o") + " wins " + std::to_string(points_won(state)) + "\n";
    lines += state.player == 0 ? "x" : "o";
    if (state.phase != Phase::kMove) return lines + " to roll\n";
    lines += " to play ";
    for (int die = 6; die >= 1; --die) lines += std::string(static_cast<std::size_t>(unplayed_of(state, die)), static_cast<char>('0' + die));
    return lines + "\n";
}

/// GNU position ID of the board and the dice: "4HPwATDgc/ABMA:31"; "00" before the roll. Then, where it is not so by default,
/// who is to move ("p1"), the rolls so far ("t7"), the unplayed dice ("u1", of a double "u66"), its last source ("s13"), and the
/// phase before the first roll ("placing3", "coin", "throw").
inline std::string Backgammon::notation(const State& state) const {
    std::string line = backgammon::position_id(state.points[1 - state.player], state.points[state.player]);
    line += ":" + std::to_string(state.dice[0]) + std::to_string(state.dice[1]);
    if (state.player != 0) line += ":p1";
    if (state.phase == Phase::kPlace) return line + ":placing" + std::to_string(state.turns);
    if (state.phase == Phase::kCoin) return line + ":coin";
    if (state.phase == Phase::kThrow) return line + ":throw";
    if (state.turns != (state.phase == Phase::kMove ? 1 : 0)) line += ":t" + std::to_string(state.turns);
    const bool doubles = state.dice[0] == state.dice[1];
    if (state.phase == Phase::kMove && state.unplayed != (doubles ? 4 : 3)) {
        line += ":u";
        for (int die = 6; die >= 1; --die) line += std::string(static_cast<std::size_t>(unplayed_of(state, die)), static_cast<char>('0' + die));
        if (doubles) line += ":s" + std::to_string(state.last);
    }
    return line;
}

namespace backgammon {

/// The number after a field's letter, or -1.
inline int number_in(const std::string& field, std::size_t from) {
    if (field.size() <= from || field.size() > from + 4) return -1;
    int number = 0;
    for (std::size_t at = from; at < field.size(); ++at) {
        if (field[at] < '0' || field[at] > '9') return -1;
        number = 10 * number + (field[at] - '0');
    }
    return number;
}

inline bool is_closed(const Points& own) {
    for (int point = 1; point <= 6; ++point) {
        if (own[point] < 2) return false;
    }
    return true;
}

/// The rule that two players' checkers break together, or "".
inline std::string impossible(const Points& one, const Points& two) {
    for (int point = 1; point <= 24; ++point) {
        if (one[point] > 0 && two[25 - point] > 0) return "checkers of both players on one point";
    }
    if (one[kOff] == kCheckers && two[kOff] == kCheckers) return "both players have borne off all their checkers";
    if (one[kBar] > 0 && two[kBar] > 0 && is_closed(one) && is_closed(two)) return "both players on the bar against closed boards";
    return "";
}

/// The fields behind a position ID; `broken` is "" or what is wrong with them.
struct Fields {
    std::string id, dice, unplayed, phase, broken;
    bool second_player = false;
    int turns = -1;    ///< -1 where it is not given.
    int last = 0;      ///< 0 where it is not given.
    int placed = -1;

    explicit Fields(const std::string& line) {
        int count = 0;
        for (std::size_t from = 0; from <= line.size(); ++count) {
            const std::size_t to = std::min(line.find(':', from), line.size());
            const std::string field = line.substr(from, to - from);
            from = to + 1;
            if (count == 0) id = field;
            else if (count == 1) dice = field;
            else if (!read(field)) broken = "'" + field + "' is no field of a backgammon position";
        }
        if (broken.empty() && !good_dice()) broken = "dice are two digits 1..6, or 00 before the roll";
    }

    bool rolled() const { return dice[0] != '0'; }
    bool is_double() const { return dice[0] == dice[1]; }

  private:
    bool read(const std::string& field) {
        if (field == "p1") return second_player = true;
        if (field == "coin" || field == "throw") return phase = field, true;
        if (field.starts_with("placing")) return phase = "placing", (placed = number_in(field, 7)) >= 0;
        if (field.starts_with("t")) return (turns = number_in(field, 1)) >= 0;
        if (field.starts_with("s")) return (last = number_in(field, 1)) >= 1 && last <= kBar;
        if (field.starts_with("u")) return unplayed = field, true;
        return false;
    }

    bool good_dice() const {
        if (dice == "00") return true;
        return dice.size() == 2 && dice[0] >= '1' && dice[0] <= '6' && dice[1] >= '1' && dice[1] <= '6';
    }
};

}  // namespace backgammon

inline std::string Backgammon::parse(const std::string& line, State& state) const {
    const backgammon::Fields fields(line);
    if (!fields.broken.empty()) return fields.broken;
    State read{};
    read.last = backgammon::kBar;
    read.player = fields.second_player ? 1 : 0;
    std::string broken = backgammon::read_position_id(fields.id, read.points[1 - read.player], read.points[read.player]);
    if (broken.empty() && fields.phase != "placing") broken = backgammon::impossible(read.points[0], read.points[1]);
    if (broken.empty() && fields.turns > max_turns_) broken = "turns end at " + std::to_string(max_turns_) + ", the parameter max_turns";
    if (broken.empty()) {
        if (!fields.phase.empty()) broken = parse_start(fields, read);
        else if (fields.rolled()) broken = parse_turn(fields, read);
        else broken = parse_roll(fields, read);
    }
    if (broken.empty()) state = read;
    return broken;
}

/// Before the first throw.
inline std::string Backgammon::parse_start(const backgammon::Fields& fields, State& read) const {
    if (fields.rolled()) return "there are no dice before the first throw";
    if (fields.second_player || fields.turns >= 0 || fields.last > 0 || !fields.unplayed.empty()) return "nobody is to move before the first throw";
    if (fields.phase != "placing") {
        if ((fields.phase == "coin") != uniform_opening_) return "'" + fields.phase + "' belongs to the other value of the parameter opening";
        read.phase = uniform_opening_ ? Phase::kCoin : Phase::kThrow;
        return "";
    }
    if (start_ == Start::kStandard) return "'placing' belongs to the parameter start=race or start=bearoff";
    for (int player = 0; player < 2; ++player) {
        const int placed = std::clamp(fields.placed - player * backgammon::kCheckers, 0, backgammon::kCheckers);
        if (fields.placed >= 2 * backgammon::kCheckers || read.points[player][backgammon::kOff] != backgammon::kCheckers - placed) {
            return "there are not as many checkers as were placed";
        }
        for (int point = start_ == Start::kRace ? 13 : 7; point <= backgammon::kBar; ++point) {
            if (read.points[player][point] > 0) return "no checker is placed on point " + std::to_string(point);
        }
        read.points[player][backgammon::kOff] = 0;  // not placed is not borne off
    }
    read.phase = Phase::kPlace;
    read.turns = static_cast<std::int16_t>(fields.placed);
    return "";
}

/// Before a roll.
inline std::string Backgammon::parse_roll(const backgammon::Fields& fields, State& read) const {
    if (!fields.unplayed.empty() || fields.last > 0) return "before the roll no dice are unplayed";
    read.phase = Phase::kRoll;
    read.turns = static_cast<std::int16_t>(std::max(fields.turns, 0));
    return "";
}

/// With dice; all unplayed, or some.
inline std::string Backgammon::parse_turn(const backgammon::Fields& fields, State& read) const {
    const int one = fields.dice[0] - '0';
    const int two = fields.dice[1] - '0';
    if (winner(read) >= 0 && fields.unplayed.empty() && fields.turns < 0) return "the game is over, so there are no dice";
    if (fields.last > 0 && (!fields.is_double() || fields.unplayed.empty())) return "a last source belongs to a double partly played";
    set_dice(read, std::max(one, two), std::min(one, two));
    read.turns = static_cast<std::int16_t>(fields.turns < 0 ? 1 : fields.turns);
    if (fields.unplayed.empty()) return "";
    if (fields.unplayed.size() > (one == two ? 5u : 3u)) return "more dice unplayed than rolled";
    read.unplayed = 0;
    for (const char die : fields.unplayed.substr(1)) {
        if (die != fields.dice[0] && die != fields.dice[1]) return "an unplayed die was not rolled";
        const int bit = die - '0' == read.dice[0] ? 1 : 2;
        if (one != two && (read.unplayed & bit) != 0) return "more dice unplayed than rolled";
        read.unplayed = static_cast<std::int8_t>(read.unplayed + (one == two ? 1 : bit));
    }
    if (fields.last > 0) read.last = static_cast<std::int8_t>(fields.last);
    read.to_play = static_cast<std::int8_t>(playable(read));
    return winner(read) < 0 && read.to_play == 0 ? "no die can be played, so the turn is over" : "";
}

}  // namespace azq
