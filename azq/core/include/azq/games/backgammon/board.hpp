/// The backgammon board: checkers of both players, each in their own numbering, and what one die may do.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace azq::backgammon {

inline constexpr int kOff = 0;   ///< Borne off.
inline constexpr int kBar = 25;  ///< Points 1..24 lie between, by distance to bearing off.
inline constexpr int kCheckers = 15;

using Points = std::int8_t[26];

/// A set of points: bit p is point p, bit 25 the bar.
using Mask = std::uint32_t;

inline constexpr Mask kHome = 0x7e;  ///< Points 1..6.
inline constexpr Mask kBarBit = Mask{1} << kBar;

/// A player's checkers on points 1..24 in the order of one side or of the other: three words of eight bytes, the first point lowest.
struct Column {
    static_assert(std::endian::native == std::endian::little);
    static constexpr std::uint64_t kEach = 0x0101010101010101u;

    std::uint64_t words[3];

    static Column of(const Points& points) {
        Column column;
        std::memcpy(column.words, points + 1, sizeof column.words);
        return column;
    }

    static Column from_other_side(const Points& points) {
        const Column own = of(points);
        return Column{{__builtin_bswap64(own.words[2]), __builtin_bswap64(own.words[1]), __builtin_bswap64(own.words[0])}};
    }

    /// Bit k: at least so many checkers on the k-th point. A byte's highest bit says so, and a product brings the eight together.
    Mask at_least(int least) const {
        Mask mask = 0;
        for (int word = 0; word < 3; ++word) {
            const std::uint64_t reached = (words[word] + kEach * static_cast<unsigned>(0x80 - least)) >> 7 & kEach;
            mask |= static_cast<Mask>(reached * 0x0102040810204080u >> 56) << 8 * word;
        }
        return mask;
    }

    /// The checkers beyond the third on each point, as 24 bytes.
    void write_beyond_third(std::uint8_t* to) const {
        for (int word = 0; word < 3; ++word) {
            const std::uint64_t less = (words[word] | 0x80 * kEach) - 3 * kEach;
            const std::uint64_t beyond = less & (less >> 7 & kEach) * 0x7f;
            std::memcpy(to + 8 * word, &beyond, sizeof beyond);
        }
    }
};

/// Points, the bar included, that a player's checkers stand on.
inline Mask occupied(const Points& own) { return Column::of(own).at_least(1) << 1 | static_cast<Mask>(own[kBar] > 0) << kBar; }

/// Points, in a player's own numbering, where the other has at most one checker.
inline Mask open_points(const Points& other) { return (~Column::from_other_side(other).at_least(2) & 0xffffff) << 1; }

/// Points from which die d may move one checker. The bar comes first; bearing off asks for all checkers at home, and with more
/// than the point asks for none behind it.
inline Mask sources(Mask own, Mask open, int die) {
    if ((own & kBarBit) != 0) return (open >> (25 - die) & 1) != 0 ? kBarBit : 0;
    const Mask inside = own & (open << die) & ~((Mask{2} << die) - 1);
    if ((own & ~kHome) != 0 || own == 0) return inside;
    const Mask exact = own & Mask{1} << die;
    const int highest = std::bit_width(own) - 1;
    return inside | exact | (highest < die ? Mask{1} << highest : 0);
}

/// What a player stands on after one checker has moved; `last` says that it was alone on its point.
inline Mask after(Mask own, int source, int die, bool last) {
    const Mask left = last ? own & ~(Mask{1} << source) : own;
    return source > die ? left | Mask{1} << (source - die) : left;
}

/// Moves one checker, hitting a blot.
inline void move(Points& own, Points& other, int source, int die) {
    --own[source];
    const int target = source > die ? source - die : kOff;
    ++own[target];
    if (target != kOff && other[25 - target] == 1) {
        other[25 - target] = 0;
        ++other[kBar];
    }
}

/// How many of `dice` moves of a double can be played, sources never ascending (which loses no end position).
inline int longest_double(const Points& own, Mask open, int die, int dice, int highest) {
    const Mask mask = occupied(own);
    Mask from = sources(mask, open, die) & ((Mask{2} << highest) - 1);
    int best = 0;
    while (from != 0 && best < dice) {
        const int source = std::bit_width(from) - 1;
        from &= ~(Mask{1} << source);
        Points next;
        for (int point = 0; point <= kBar; ++point) next[point] = own[point];
        --next[source];
        ++next[source > die ? source - die : kOff];
        const int length = dice == 1 ? 1 : 1 + longest_double(next, open, die, dice - 1, source);
        best = length > best ? length : best;
    }
    return best;
}

/// Sources of die d after which `then` can still be played.
inline Mask sources_before(const Points& own, Mask open, int die, int then) {
    const Mask mask = occupied(own);
    Mask kept = 0;
    for (Mask from = sources(mask, open, die); from != 0; from &= from - 1) {
        const int source = std::countr_zero(from);
        if (sources(after(mask, source, die, own[source] == 1), open, then) != 0) kept |= Mask{1} << source;
    }
    return kept;
}

inline int pips(const Points& own) {
    int sum = 0;
    for (int point = 1; point <= kBar; ++point) sum += point * own[point];
    return sum;
}

/// Whether checkers of the two players can still meet.
inline bool contact(const Points& own, const Points& other) {
    const int mine = std::bit_width(occupied(own)) - 1;
    const int theirs = std::bit_width(occupied(other)) - 1;
    return mine + theirs > 25;
}

}  // namespace azq::backgammon
