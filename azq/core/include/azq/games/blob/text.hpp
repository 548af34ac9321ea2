/// Blob in words. A position on one line is what was dealt and what happened since, so that reading it is playing it:
///
///     c5 tS d0 | 2S 9H .. / .. / .. / .. | 1 0 2 1 | AS 3S .. | 0 0 0 0
///
/// cards and trump ("?" while chance has not said), dealer; the hands as dealt, by player; bids and cards in the order they came;
/// totals before this round, and in a whole game the round ("r3") after the dealer.
#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "azq/games/blob.hpp"

namespace azq {

namespace blob {

inline std::vector<std::string> split(const std::string& text, char by) {
    std::vector<std::string> parts{""};
    for (const char at : text) {
        if (at == by) parts.emplace_back();
        else parts.back() += at;
    }
    return parts;
}

inline std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> found;
    for (const std::string& part : split(text, ' ')) {
        if (!part.empty()) found.push_back(part);
    }
    return found;
}

/// A whole number of at most four digits, perhaps negative; `ok` turns false where it is none.
inline int number_of(const std::string& text, bool& ok) {
    const std::size_t from = !text.empty() && text[0] == '-' ? 1 : 0;
    int value = 0;
    ok = ok && text.size() > from && text.size() <= from + 4;
    for (std::size_t i = from; i < text.size() && ok; ++i) {
        ok = text[i] >= '0' && text[i] <= '9';
        value = 10 * value + (text[i] - '0');
    }
    return from == 1 ? -value : value;
}

}  // namespace blob

template <int Players>
std::string Blob<Players>::action_text(const State& state, int number) const {
    if (state.phase == Phase::kCards) return std::to_string(number) + " cards each";
    if (state.phase == Phase::kTrump) return number == blob::kNoTrump ? "no trump" : std::string("trump ") + "SHCD"[number];
    if (state.phase == Phase::kDeal) return blob::card_text(number) + " to " + std::to_string(at(state.dealer, 1 + state.num_dealt % Players));
    return number >= kBid ? "bid " + std::to_string(number - kBid) : blob::card_text(number);
}

namespace blob {

/// Bids in the order they were made, then the cards in the order they were played.
template <class State>
std::string public_part(const State& state, int players) {
    std::string line = "|";
    for (int i = 1; i <= players; ++i) {
        const int bid = state.bids[(state.dealer + i) % players];
        if (bid >= 0) line += " " + std::to_string(bid);
    }
    line += " |";
    for (int i = 0; i < state.num_played; ++i) line += " " + card_text(state.sequence[i]);
    line += " |";
    for (int player = 0; player < players; ++player) line += " " + std::to_string(state.totals[player]);
    return line;
}

template <class State>
std::string head(const State& state) {
    const std::string trump = state.trump < 0 ? "?" : std::string(1, "SHCDN"[state.trump]);
    std::string line = "c" + (state.cards == 0 ? std::string("?") : std::to_string(state.cards)) + " t" + trump;
    line += " d" + std::to_string(state.dealer);
    return state.round > 0 ? line + " r" + std::to_string(state.round) : line;
}

}  // namespace blob

template <int Players>
std::string Blob<Players>::notation(const State& state) const {
    if (state.phase == Phase::kOver) {
        // The last round's cards are gone from no hand that matters; what counts is kept: bids, cards and totals before the round.
        State before = state;
        for (int player = 0; player < Players; ++player) {
            before.totals[player] = static_cast<std::int16_t>(before.totals[player] - round_score(state.bids[player], state.tricks[player]));
        }
        before.phase = Phase::kPlay;
        return notation(before);
    }
    std::string hands;
    for (int player = 0; player < Players; ++player) {
        hands += (player > 0 ? " / " : " ") + blob::cards_text(state.hands[player] | state.played[player]);
    }
    return blob::head(state) + " |" + hands + " " + blob::public_part(state, Players);
}

template <int Players>
std::string Blob<Players>::information_state(const State& state, int player) const {
    return blob::head(state) + " | seat " + std::to_string(player) + ": " + blob::cards_text(state.hands[player] | state.played[player]) + " " +
           blob::public_part(state, Players);
}

template <int Players>
std::string Blob<Players>::text(const State& state) const {
    std::string lines = blob::head(state) + "\n";
    for (int player = 0; player < Players; ++player) {
        lines += (player == state.turn && state.phase >= Phase::kBid ? "> " : "  ") + std::to_string(player) + ": bid " +
                 (state.bids[player] < 0 ? "-" : std::to_string(state.bids[player])) + ", took " + std::to_string(state.tricks[player]) +
                 ", total " + std::to_string(state.totals[player]) + " | " + blob::cards_text(state.hands[player]) + "\n";
    }
    lines += "trick:";
    const int in_trick = state.num_played % Players;
    for (int i = in_trick; i > 0; --i) lines += " " + blob::card_text(state.sequence[state.num_played - i]);
    return lines + "\n";
}

template <int Players>
bool Blob<Players>::reachable(int total, int round) const {
    constexpr int kZero = 4000;  // no game scores more, nor loses as much
    std::bitset<2 * kZero + 1> totals;
    totals.set(kZero);
    for (int before = 0; before < round; ++before) {
        const std::bitset<2 * kZero + 1> last = totals;
        totals.reset();
        const int cards = cards_of_round(before);
        for (int bid = 0; bid <= cards; ++bid) {
            for (int tricks = 0; tricks <= cards; ++tricks) {
                const int score = round_score(bid, tricks);
                totals |= score < 0 ? last >> static_cast<std::size_t>(-score) : last << static_cast<std::size_t>(score);
            }
        }
    }
    return total >= -kZero && total <= kZero && totals.test(static_cast<std::size_t>(kZero + total));
}

/// Begins the round that the head tells of.
template <int Players>
std::string Blob<Players>::read_head(const std::string& part, State& read) const {
    bool ok = true;
    int cards = -1;
    int trump = -2;
    int dealer = -1;
    int round = 0;
    for (const std::string& word : blob::words(part)) {
        const std::string value = word.substr(1);
        if (word[0] == 'c') cards = value == "?" ? 0 : blob::number_of(value, ok);
        else if (word[0] == 't') trump = value == "?" ? -1 : (value.size() == 1 ? static_cast<int>(std::string("SHCDN").find(value)) : -2);
        else if (word[0] == 'r') round = blob::number_of(value, ok);
        else if (word[0] == 'd') dealer = blob::number_of(value, ok);
        else return "'" + word + "' is not of the head: c, t, d, r";
    }
    if (!ok || cards < 0 || trump < -1 || trump > blob::kNoTrump || round < 0 || round >= num_rounds()) {
        return "the head says cards (c5), trump (tS, tH, tC, tD, tN), dealer (d0) and in a whole game the round (r3)";
    }
    read.round = static_cast<std::int8_t>(round);
    begin_round(read);
    if (dealer != read.dealer) return "the dealer of this round is player " + std::to_string(read.dealer);
    if (read.cards == 0 && cards > 0 && cards <= rules_.cards) read.cards = static_cast<std::int8_t>(cards);
    if (read.cards != cards) return "this round has another number of cards";
    if (read.trump < 0 && cards > 0) read.trump = static_cast<std::int8_t>(trump);
    if (read.trump != trump) return "this round has another trump";
    find_phase(read);
    return blob::words(part) == blob::words(blob::head(read)) ? "" : "the head is written " + blob::head(read);
}

template <int Players>
std::string Blob<Players>::read_totals(const std::string& part, State& read) const {
    const std::vector<std::string> totals = blob::words(part);
    if (totals.size() != static_cast<std::size_t>(Players)) return "there is one total for each of " + std::to_string(Players) + " players";
    for (int player = 0; player < Players; ++player) {
        bool ok = true;
        const int total = blob::number_of(totals[static_cast<std::size_t>(player)], ok);
        if (!ok) return "totals are whole numbers";
        if (!reachable(total, read.round)) {
            return "player " + std::to_string(player) + " cannot have " + std::to_string(total) + " points after " + std::to_string(read.round) + " rounds";
        }
        read.totals[player] = static_cast<std::int16_t>(total);
    }
    return "";
}

template <int Players>
std::string Blob<Players>::parse(const std::string& line, State& state) const {
    const std::vector<std::string> parts = blob::split(line, '|');
    if (parts.size() != 5) return "a position has five parts between '|': head, hands, bids, cards played, totals";
    State read = initial();
    const std::string head = read_head(parts[0], read);
    if (!head.empty()) return head;
    const std::string totals = read_totals(parts[4], read);
    if (!totals.empty()) return totals;
    bool ok = true;

    const std::vector<std::string> hands = blob::split(parts[1], '/');
    if (hands.size() != static_cast<std::size_t>(Players)) return "there is one hand for each of " + std::to_string(Players) + " players";
    std::vector<std::vector<std::string>> dealt;
    for (const std::string& hand : hands) dealt.push_back(blob::words(hand));
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < Players; ++i) {
            auto& hand = dealt[static_cast<std::size_t>(at(read.dealer, 1 + i))];
            if (hand.empty()) continue;
            any = true;
            const int card = blob::card_named(hand.front());
            if (card < 0) return "'" + hand.front() + "' is no card; write rank and suit, like TS for the ten of spades";
            if (read.phase != Phase::kDeal) return "more cards are dealt than this round has";
            if ((undealt(read) >> card & 1) == 0) return blob::card_text(card) + " is dealt twice";
            if (at(read.dealer, 1 + read.num_dealt % Players) != at(read.dealer, 1 + i)) return "hands are not dealt round the table";
            hand.erase(hand.begin());
            deal(read, card);
        }
    }
    for (const std::string& word : blob::words(parts[2])) {
        const int tricks = blob::number_of(word, ok);
        if (!ok || read.phase != Phase::kBid || !is_legal(*this, read, kBid + tricks)) return "bid " + word + " cannot be made here";
        apply(read, kBid + tricks);
    }
    for (const std::string& word : blob::words(parts[3])) {
        const int card = blob::card_named(word);
        if (card < 0 || read.phase != Phase::kPlay || !is_legal(*this, read, card)) return word + " cannot be played here";
        apply(read, card);
    }
    state = read;
    return "";
}

}  // namespace azq
