/// The queue before the bar, and what each animal does in it.
#pragma once

#include <bit>

#include "azq/games/beasty_bar/cards.hpp"

namespace azq::beasty {

/// One animal of one player: owner << 4 | animal.
using Card = std::uint8_t;

constexpr Card make_card(int owner, int animal) { return static_cast<Card>(owner << 4 | animal); }
constexpr int owner_of(Card card) { return card >> 4; }
constexpr int animal_of(Card card) { return card & 15; }

/// Where an animal is that is not in the queue: a bit an animal, for each owner.
inline void put(std::uint16_t* sets, Card card) {
    sets[owner_of(card)] = static_cast<std::uint16_t>(sets[owner_of(card)] | 1u << animal_of(card));
}

/// Index 0 stands at the gate. Whoever leaves is out, unless the bar opens.
struct Queue {
    Card cards[kMaxQueue];
    std::int8_t length;

    int animal(int at) const { return animal_of(cards[at]); }

    /// The animals present, a bit each.
    unsigned present() const {
        unsigned animals = 0;
        for (int i = 0; i < length; ++i) animals |= 1u << animal(i);
        return animals;
    }

    int find(Card card) const {
        for (int i = 0; i < length; ++i) {
            if (cards[i] == card) return i;
        }
        return -1;
    }

    /// A whole turn's worth: the card joins, acts as `play` says, then the recurring animals act, then the bar may open.
    void play(Card card, Play play, std::uint16_t* bar, std::uint16_t* out) {
        cards[length++] = card;
        act(length - 1, play, out);
        recur(card, out);
        open(bar, out);
    }

  private:
    void remove(int at, std::uint16_t* out) {
        put(out, cards[at]);
        for (int i = at + 1; i < length; ++i) cards[i - 1] = cards[i];
        --length;
    }

    /// Throws out every animal of a set but the one at `spared` (which moves up); returns where that one is now.
    int remove_all(unsigned animals, int spared, std::uint16_t* out) {
        int kept = 0;
        int where = -1;
        for (int i = 0; i < length; ++i) {
            if (i != spared && ((animals >> animal(i)) & 1) != 0) {
                put(out, cards[i]);
                continue;
            }
            if (i == spared) where = kept;
            cards[kept++] = cards[i];
        }
        length = static_cast<std::int8_t>(kept);
        return where;
    }

    /// Takes the animal at `from` forward to `to`.
    void advance(int from, int to) {
        const Card card = cards[from];
        for (int i = from; i > to; --i) cards[i] = cards[i - 1];
        cards[to] = card;
    }

    void act(int at, Play play, std::uint16_t* out) {
        switch (play.as) {
            case kLion: return lion(at, out);
            case kHippo: return hippo(at);
            case kCrocodile: return crocodile(at, out);
            case kSnake: return snake(at);
            case kGiraffe: return giraffe(at);
            case kSeal: return seal();
            case kMonkey: return monkey(at, out);
            case kKangaroo: return advance(at, at - play.choice);
            case kParrot:
                if (play.choice >= 0) remove(play.choice, out);
                return;
            case kSkunk: return skunk(at, out);
            default: return;  // the zebra, and a chameleon with nobody to copy
        }
    }

    void lion(int at, std::uint16_t* out) {
        bool rival = false;
        for (int i = 0; i < length; ++i) rival |= i != at && animal(i) == kLion;
        if (rival) return remove(at, out);
        advance(remove_all(1u << kMonkey, at, out), 0);
    }

    /// Whether the animal at `at`, acting with a strength, is stopped by the one ahead.
    bool stopped(int at, int strength) const {
        return at == 0 || animal(at - 1) == kZebra || animal(at - 1) >= strength;
    }

    void hippo(int at) {
        int to = at;
        while (!stopped(to, kHippo)) --to;
        advance(at, to);
    }

    void crocodile(int at, std::uint16_t* out) {
        for (; !stopped(at, kCrocodile); --at) remove(at - 1, out);
    }

    void giraffe(int at) {
        if (at > 0 && animal(at - 1) < kGiraffe) advance(at, at - 1);
    }

    /// Stable insertion: the strongest to the gate. The animal at `at` counts as a snake, which a chameleon is not.
    void snake(int at) {
        int strength[kMaxQueue];
        for (int i = 0; i < length; ++i) {
            const Card card = cards[i];
            const int own = i == at ? static_cast<int>(kSnake) : animal_of(card);
            int to = i;
            for (; to > 0 && strength[to - 1] < own; --to) {
                strength[to] = strength[to - 1];
                cards[to] = cards[to - 1];
            }
            strength[to] = own;
            cards[to] = card;
        }
    }

    void seal() {
        for (int i = 0, j = length - 1; i < j; ++i, --j) {
            const Card card = cards[i];
            cards[i] = cards[j];
            cards[j] = card;
        }
    }

    /// Two monkeys or more; the last to come leads them to the gate.
    void monkey(int at, std::uint16_t* out) {
        bool joined = false;
        for (int i = 0; i < length; ++i) joined |= i != at && animal(i) == kMonkey;
        if (!joined) return;
        at = remove_all(1u << kHippo | 1u << kCrocodile, at, out);
        Card ordered[kMaxQueue];
        int count = 0;
        ordered[count++] = cards[at];
        for (int i = length - 1; i >= 0; --i) {
            if (i != at && animal(i) == kMonkey) ordered[count++] = cards[i];
        }
        for (int i = 0; i < length; ++i) {
            if (i != at && animal(i) != kMonkey) ordered[count++] = cards[i];
        }
        for (int i = 0; i < length; ++i) cards[i] = ordered[i];
    }

    /// The two strongest kinds go, whoever acts excepted; skunks never.
    void skunk(int at, std::uint16_t* out) {
        unsigned others = 0;
        for (int i = 0; i < length; ++i) others |= i == at ? 0u : 1u << animal(i);
        others &= ~(1u << kSkunk);
        const unsigned first = std::bit_floor(others);
        remove_all(first | std::bit_floor(others & ~first), at, out);
    }

    /// The recurring animals but the one just played, from the gate as they stand before the first of them acts.
    void recur(Card played, std::uint16_t* out) {
        constexpr unsigned kRecurring = 1u << kGiraffe | 1u << kCrocodile | 1u << kHippo;
        Card acting[kMaxQueue];
        int count = 0;
        for (int i = 0; i < length; ++i) {
            if (((kRecurring >> animal(i)) & 1) != 0 && cards[i] != played) acting[count++] = cards[i];
        }
        for (int i = 0; i < count; ++i) {
            const int at = find(acting[i]);
            const auto as = static_cast<std::int8_t>(animal_of(acting[i]));
            if (at >= 0) act(at, Play{as, as, -1}, out);
        }
    }

    void open(std::uint16_t* bar, std::uint16_t* out) {
        if (length < kMaxQueue) return;
        put(bar, cards[0]);
        put(bar, cards[1]);
        put(out, cards[4]);
        cards[0] = cards[2];
        cards[1] = cards[3];
        length = 2;
    }
};

}  // namespace azq::beasty
