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

/// The rule that two players' checkers break together, or "".
inline std::string impossible(const Points& one, const Points& two) {
    for (int point = 1; point <= 24; ++point) {
        if (one[point] > 0 && two[25 - point] > 0) return "checkers of both players on one point";
    }
    if (one[kOff] == kCheckers && two[kOff] == kCheckers) return "both players have borne off all their checkers";
    const Points* both[2] = {&one, &two};
    for (int side = 0; side < 2; ++side) {
        int closed = 0;
        for (int point = 1; point <= 6; ++point) closed += (*both[1 - side])[point] >= 2;
        if ((*both[side])[kBar] > 0 && closed == 6 && (*both[1 - side])[kBar] > 0) return "both players on the bar against a closed board";
    }
    return "";
}

}  // namespace backgammon

inline std::string Backgammon::parse(const std::string& line, State& state) const {
    std::string fields[8];
    std::size_t count = 0;
    for (std::size_t from = 0; from <= line.size() && count < 8;) {
        const std::size_t to = std::min(line.find(':', from), line.size());
        fields[count++] = line.substr(from, to - from);
        from = to + 1;
    }
    State read = initial();
    std::string unplayed;
    read.phase = Phase::kMove;
    int turns = -1;
    for (std::size_t i = 2; i < count; ++i) {
        const std::string& field = fields[i];
        if (field == "p1") read.player = 1;
        else if (field == "coin" && uniform_opening_) read.phase = Phase::kCoin;
        else if (field == "throw" && !uniform_opening_) read.phase = Phase::kThrow;
        else if (field.starts_with("placing") && start_ != Start::kStandard) read.phase = Phase::kPlace, turns = backgammon::number_in(field, 7);
        else if (field.starts_with("t")) turns = backgammon::number_in(field, 1);
        else if (field.starts_with("u")) unplayed = field.substr(1);
        else if (field.starts_with("s")) read.last = static_cast<std::int8_t>(backgammon::number_in(field, 1));
        else return "'" + field + "' is no field of a backgammon position";
    }
    std::string broken = backgammon::read_position_id(fields[0], read.points[1 - read.player], read.points[read.player]);
    if (read.phase == Phase::kPlace) {
        if (turns < 0 || turns >= 30) return "so many checkers are never placed";
        for (auto& own : read.points) own[backgammon::kOff] = 0;
        read.turns = static_cast<std::int16_t>(turns);
        if (broken.empty()) state = read;
        return broken;
    }
    if (broken.empty()) broken = backgammon::impossible(read.points[0], read.points[1]);
    if (!broken.empty()) return broken;
    const std::string& dice = fields[1];
    if (dice.size() != 2 || dice[0] < '0' || dice[0] > '6' || dice[1] < '0' || dice[1] > '6' || (dice[0] == '0') != (dice[1] == '0')) {
        return "dice are two digits 1..6, or 00 before the roll";
    }
    const int one = dice[0] - '0';
    const int two = dice[1] - '0';
    if (one == 0) {
        if (!unplayed.empty()) return "before the roll no dice are unplayed";
        if (read.phase == Phase::kMove) read.phase = Phase::kRoll;
        read.turns = static_cast<std::int16_t>(std::max(turns, 0));
        state = read;
        return "";
    }
    if (read.phase != Phase::kMove) return "there are no dice before the first throw";
    if (winner(read) >= 0 && unplayed.empty() && turns < 0) return "the game is over, so there are no dice";
    if (read.last < 1 || read.last > backgammon::kBar) return "the last source is a point 1..24 or 25, the bar";
    const std::int8_t last = read.last;
    set_dice(read, std::max(one, two), std::min(one, two));
    read.last = last;
    read.turns = static_cast<std::int16_t>(turns < 0 ? 1 : turns);
    if (!unplayed.empty() || (winner(read) >= 0 && one != two)) {
        read.unplayed = 0;
        for (const char die : unplayed) {
            if (die - '0' != read.dice[0] && die - '0' != read.dice[1]) return "an unplayed die was not rolled";
            if (one == two) ++read.unplayed;
            else read.unplayed = static_cast<std::int8_t>(read.unplayed | (die - '0' == read.dice[0] ? 1 : 2));
        }
        if (read.unplayed > 4 || (one != two && unplayed.size() > 2)) return "more dice unplayed than rolled";
        read.to_play = static_cast<std::int8_t>(playable(read));
        if (winner(read) < 0 && read.to_play == 0) return "no die can be played, so the turn is over";
    }
    state = read;
    return "";
}

}  // namespace azq
