/// A pack of 52: card 13 * suit + rank, suits spades, hearts, clubs, diamonds, ranks two to ace.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

namespace azq::blob {

inline constexpr int kPack = 52;
inline constexpr int kSuits = 4;
inline constexpr int kRanks = 13;
inline constexpr int kNoTrump = 4;
inline constexpr int kMostCards = 17;

/// A set of cards: bit = card.
using Cards = std::uint64_t;

inline constexpr Cards kAll = (Cards{1} << kPack) - 1;

inline constexpr Cards bit(int card) { return Cards{1} << card; }
inline constexpr Cards suit_cards(int suit) { return Cards{0x1fff} << (kRanks * suit); }
inline constexpr int suit_of(int card) { return card / kRanks; }

inline std::string card_text(int card) { return {"23456789TJQKA"[card % kRanks], "SHCD"[suit_of(card)]}; }

/// The card that two characters name, or -1.
inline int card_named(const std::string& text) {
    for (int card = 0; card < kPack; ++card) {
        if (card_text(card) == text) return card;
    }
    return -1;
}

inline std::string cards_text(Cards cards) {
    std::string text;
    for (; cards != 0; cards &= cards - 1) text += (text.empty() ? "" : " ") + card_text(std::countr_zero(cards));
    return text;
}

}  // namespace azq::blob
