/// GNU Backgammon's position ID: 80 bits in 14 characters.
#pragma once

#include <string>

#include "azq/games/backgammon/board.hpp"

namespace azq::backgammon {

inline constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
inline constexpr std::size_t kIdLength = 14;

/// For the player NOT on roll and then the one on roll: for points 1..24 and the bar, in his own numbering, as many ones as he
/// has checkers there, then a zero; little-endian bits, base 64.
inline std::string position_id(const Points& waiting, const Points& on_roll) {
    std::uint8_t bytes[11] = {};
    int bit = 0;
    const auto write = [&](const Points& points) {
        for (int point = 1; point <= kBar; ++point) {
            for (int checker = 0; checker < points[point]; ++checker, ++bit) {
                bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | 1u << bit % 8);
            }
            ++bit;
        }
    };
    write(waiting);
    write(on_roll);
    std::string id;
    for (int group = 0; group < 4; ++group) {
        const unsigned word = static_cast<unsigned>(bytes[3 * group] << 16 | (3 * group + 1 < 10 ? bytes[3 * group + 1] << 8 : 0) |
                                                    (3 * group + 2 < 10 ? bytes[3 * group + 2] : 0));
        for (int six = 0; six < 4 && id.size() < kIdLength; ++six) id += kBase64[word >> (18 - 6 * six) & 63];
    }
    return id;
}

/// Reads an ID; returns "" or what is wrong with it. Checkers that are nowhere are borne off.
inline std::string read_position_id(const std::string& id, Points& waiting, Points& on_roll) {
    if (id.size() != kIdLength) return "a position ID has 14 characters";
    bool bits[88] = {};  // 14 characters are 10 bytes and four bits, which fill the high end of an eleventh
    const std::string alphabet = kBase64;
    for (std::size_t at = 0; at < kIdLength; ++at) {
        const std::size_t value = alphabet.find(id[at]);
        if (value == std::string::npos) return std::string("'") + id[at] + "' is no character of a position ID";
        for (std::size_t six = 0; six < 6; ++six) {
            const std::size_t bit = 6 * at + six;  // counted from the top of each byte
            bits[bit / 8 * 8 + (7 - bit % 8)] = (value >> (5 - six) & 1) != 0;
        }
    }
    std::size_t bit = 0;
    Points* both[2] = {&waiting, &on_roll};
    for (Points* points : both) {
        int total = 0;
        for (int point = 1; point <= kBar; ++point, ++bit) {
            int count = 0;
            for (; bit < 80 && bits[bit]; ++bit) ++count;
            if (bit >= 80) return "the position ID has more checkers than fit";
            (*points)[point] = static_cast<std::int8_t>(count > kCheckers ? kCheckers + 1 : count);
            total += count;
        }
        if (total > kCheckers) return std::to_string(total) + " checkers of one player; there are 15";
        (*points)[kOff] = static_cast<std::int8_t>(kCheckers - total);
    }
    for (; bit < 88; ++bit) {
        if (bits[bit]) return "the position ID goes on after the last checker";
    }
    return "";
}

}  // namespace azq::backgammon
