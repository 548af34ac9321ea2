/// A position of Beasty Bar, and the ways it changes.
#pragma once

#include <bit>

#include "azq/games/beasty_bar/queue.hpp"
#include "azq/rng.hpp"

namespace azq::beasty {

inline int points(unsigned animals) {
    int sum = 0;
    for (; animals != 0; animals &= animals - 1) sum += kPoints[static_cast<std::size_t>(std::countr_zero(animals))];
    return sum;
}

/// Sets of animals have a bit each. The history is here because players remember it; nothing else depends on it.
template <int Players>
struct State {
    std::uint64_t drawn[Players];  ///< The order in which a player drew: a nibble an animal, the first lowest.
    std::uint16_t hand[Players];
    std::uint16_t pile[Players];
    std::uint16_t bar[Players];
    std::uint16_t out[Players];
    Queue queue;
    std::int8_t plies;    ///< Cards played by all.
    std::int8_t drawer;   ///< Who draws now; -1: nobody.
    std::int8_t unknown;  ///< Plies of a history that nobody wrote down; -1: all is known, from the first card dealt.
    std::uint8_t played[kAnimals * Players];  ///< The actions, but for the unknown ones.

    static State dealing() {
        State state{};
        for (std::uint16_t& pile : state.pile) pile = kAll;
        state.unknown = -1;
        return state;
    }

    int actor() const {
        if (drawer >= 0) return -1;  // chance
        return plies == kAnimals * Players ? -4 : plies % Players;
    }

    /// Cards that a player has drawn.
    int num_drawn(int player) const { return kAnimals - std::popcount(pile[player]); }

    /// Cards that a player has played.
    int turns(int player) const { return (plies - player + Players - 1) / Players; }

    void draw(int animal) {
        const auto bit = static_cast<std::uint16_t>(1u << animal);
        drawn[drawer] |= static_cast<std::uint64_t>(animal) << 4 * num_drawn(drawer);
        pile[drawer] = static_cast<std::uint16_t>(pile[drawer] ^ bit);
        hand[drawer] = static_cast<std::uint16_t>(hand[drawer] ^ bit);
        if (plies > 0) drawer = -1;
        else if (std::popcount(hand[drawer]) == kHand) drawer = static_cast<std::int8_t>(drawer + 1 < Players ? drawer + 1 : -1);
    }

    void play(int action) {
        const int player = plies % Players;
        const Play play = kPlays[static_cast<std::size_t>(action)];
        hand[player] = static_cast<std::uint16_t>(hand[player] ^ 1u << play.card);
        played[plies++] = static_cast<std::uint8_t>(action);
        queue.play(make_card(player, play.card), play, bar, out);
        drawer = static_cast<std::int8_t>(pile[player] != 0 ? player : -1);
    }

    int legal(std::uint16_t* actions) const {
        const unsigned held = hand[plies % Players];
        int count = 0;
        const auto add = [&](int first, int number) {
            for (int i = 0; i < number; ++i) actions[count++] = static_cast<std::uint16_t>(first + i);
        };
        const auto has = [held](int animal) { return ((held >> animal) & 1) != 0; };
        for (int action = 0; action < kKangarooAction; ++action) {
            if (has(kPlain[static_cast<std::size_t>(action)])) add(action, 1);
        }
        const int ahead = queue.length;
        const int jumps = ahead < 2 ? ahead : 2;
        if (has(kKangaroo)) ahead == 0 ? add(kKangarooAction, 1) : add(kKangarooAction + 1, jumps);
        if (has(kParrot)) ahead == 0 ? add(kParrotAction, 1) : add(kParrotAction + 1, ahead);
        if (!has(kChameleon)) return count;
        const unsigned models = queue.present() & ~(1u << kChameleon);
        if (models == 0) add(kIdleChameleon, 1);
        for (int action = 0; action < kKangarooAction; ++action) {
            if (((models >> kPlain[static_cast<std::size_t>(action)]) & 1) != 0) add(kIdleChameleon + 1 + action, 1);
        }
        if (((models >> kKangaroo) & 1) != 0) add(kJumpingChameleon, jumps);
        if (((models >> kParrot) & 1) != 0) add(kParrotChameleon, ahead);
        return count;
    }

    /// Shuffles a player's unplayed cards into hand and pile: no deal is likelier than another, whatever he played, since every
    /// card he has not played could have come at any time.
    void redraw(int player, Rng& rng) {
        std::uint8_t cards[kAnimals];
        int count = 0;
        for (unsigned left = hand[player] | unsigned{pile[player]}; left != 0; left &= left - 1) {
            cards[count++] = static_cast<std::uint8_t>(std::countr_zero(left));
        }
        const int held = std::popcount(hand[player]);
        unsigned chosen = 0;
        for (int i = 0; i < held; ++i) {
            const int at = i + rng.below(count - i);
            const std::uint8_t card = cards[at];
            cards[at] = cards[i];
            cards[i] = card;
            chosen |= 1u << card;
        }
        pile[player] = static_cast<std::uint16_t>((hand[player] | pile[player]) & ~chosen);
        hand[player] = static_cast<std::uint16_t>(chosen);
        if (unknown < 0) reorder(player, cards, rng);
    }

  private:
    /// Redraws the order in which a player drew: each card he played was any of those he then held. `held`: his hand, in an
    /// order that is random already.
    void reorder(int player, const std::uint8_t* held, Rng& rng) {
        int slots[kHand] = {0, 1, 2, 3};  // of the cards in hand: when they were drawn
        int size = kHand;
        std::uint64_t order = 0;
        const int ended = turns(player);
        std::uint32_t choices = rng.next();  // two bits a choice among four
        for (int turn = 0; turn < ended; ++turn) {
            const int slot = size == kHand ? static_cast<int>(choices & 3) : rng.below(size);
            choices >>= 2;
            const int animal = kPlays[played[turn * Players + player]].card;
            order |= static_cast<std::uint64_t>(animal) << 4 * slots[slot];
            const int next = kHand + turn;
            slots[slot] = next < kAnimals ? next : slots[--size];
        }
        int written = std::popcount(hand[player]);
        for (int slot = 0, at = 0; at < written; ++slot) {
            if (slots[slot] < num_drawn(player)) order |= static_cast<std::uint64_t>(held[at++]) << 4 * slots[slot];
        }
        drawn[player] = order;
    }
};

}  // namespace azq::beasty
