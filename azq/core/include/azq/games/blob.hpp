/// Blob (Oh Hell): bid how many tricks you will take, and take exactly those.
///
/// Actions: card 0..51 (blob/cards.hpp), 52 + b bids b. Chance: the number of cards, the trump suit (where the rules leave them
/// open), and every card dealt. Hidden: the others' hands and the undealt cards. mover() of a chance node is the dealer's left.
#pragma once

#include <string>

#include "azq/game.hpp"
#include "azq/games/blob/cards.hpp"
#include "azq/games/blob/deal.hpp"
#include "azq/square.hpp"

namespace azq {

enum class BlobScoring : std::uint8_t { kExact, kOpenSpiel, kSquare, kPlus };

/// What a table agrees on; defaults are Blob's.
struct BlobRules {
    int cards = 5;               ///< Each; of the longest round in a whole game.
    bool any_cards = false;      ///< Chance chooses 1..cards first.
    int trump = -1;              ///< A suit, kNoTrump, or -1: chance chooses one of the five.
    int dealer = 0;
    bool hook = true;            ///< The dealer may not make the bids sum to the number of tricks.
    BlobScoring scoring = BlobScoring::kExact;
    int points_per_trick = 1;    ///< Of OpenSpiel's scoring.
    bool off_bid_penalty = false;
    bool whole_game = false;     ///< Rounds of k..2, then one card once a player, then 2..k; trump and dealer rotate.
    bool relative = false;       ///< Returns are the own score less the mean of the others'.
};

template <int Players>
struct Blob {
    static_assert(Players >= 3 && Players <= 8);

    static constexpr const char* kName = "blob";
    static constexpr int kNumPlayers = Players;
    static constexpr int kBid = blob::kPack;  ///< Action kBid + b bids b.
    static constexpr int kNumActions = kBid + blob::kMostCards + 1;
    static constexpr int kMaxLegal = blob::kMostCards + 1;
    static constexpr int kMaxLength = (2 * blob::kMostCards + Players) * Players * (blob::kMostCards + 1);
    static constexpr int kPlanes = 4 + 2 * Players;  ///< Hand, this trick, suit led, trump; played by seat; suits a seat has not.
    static constexpr int kRows = 1;
    static constexpr int kColumns = blob::kPack;
    static constexpr int kNumScalars = 6 * Players + 6;  ///< See observe.
    static constexpr int kNumSymmetries = 24;            ///< Permutations of the suits: all that tells suits apart is in the planes.
    static constexpr int kMaxOutcomes = blob::kPack;
    static constexpr int kNumHidden = blob::kPack * (Players - 1);  ///< 52 * (r - 1) + card: seat r holds it.

    enum class Phase : std::int8_t { kCards, kTrump, kDeal, kBid, kPlay, kOver };

    struct State {
        blob::Cards hands[Players];
        blob::Cards played[Players];
        std::int16_t totals[Players];  ///< Scores of the rounds before; of the last one too when the game is over.
        std::int8_t bids[Players];     ///< -1: not yet.
        std::int8_t tricks[Players];
        std::uint8_t voids[Players];   ///< Bit s: failed to follow suit s.
        std::int8_t sequence[blob::kPack];  ///< Cards in the order they were played in this round.
        std::int8_t num_played;
        std::int8_t num_dealt;
        std::int8_t cards;    ///< In this round; 0: chance is to say.
        std::int8_t trump;    ///< -1: chance is to say.
        std::int8_t dealer;
        std::int8_t turn;     ///< Who bids or plays.
        std::int8_t leader;   ///< Of the trick at hand.
        std::int8_t round;
        Phase phase;
    };

    explicit Blob(const BlobRules& rules = {}) : rules_(rules) {}

    State initial() const {
        State state{};
        begin_round(state);
        return state;
    }

    int actor(const State& state) const {
        if (state.phase == Phase::kOver) return kTerminalPlayer;
        return state.phase < Phase::kBid ? kChancePlayer : state.turn;
    }
    int mover(const State& state) const { return state.turn; }

    int chance(const State& state, Outcome* outcomes) const {
        int count = 0;
        const auto uniform = [&](int number, int from) {
            for (; count < number; ++count) outcomes[count] = {static_cast<std::uint16_t>(from + count), 1.0f / static_cast<float>(number)};
            return count;
        };
        if (state.phase == Phase::kCards) return uniform(rules_.cards, 1);
        if (state.phase == Phase::kTrump) return uniform(5, 0);
        blob::Cards deck = undealt(state);
        const float probability = 1.0f / static_cast<float>(std::popcount(deck));
        for (; deck != 0; deck &= deck - 1) outcomes[count++] = {static_cast<std::uint16_t>(std::countr_zero(deck)), probability};
        return count;
    }

    int legal(const State& state, std::uint16_t* actions) const {
        int count = 0;
        if (state.phase == Phase::kBid) {
            const int forbidden = forbidden_bid(state);
            for (int bid = 0; bid <= state.cards; ++bid) {
                if (bid != forbidden) actions[count++] = static_cast<std::uint16_t>(kBid + bid);
            }
            return count;
        }
        for (blob::Cards cards = playable(state); cards != 0; cards &= cards - 1) {
            actions[count++] = static_cast<std::uint16_t>(std::countr_zero(cards));
        }
        return count;
    }

    void apply(State& state, int number) const {
        switch (state.phase) {
            case Phase::kCards: state.cards = static_cast<std::int8_t>(number); return find_phase(state);
            case Phase::kTrump: state.trump = static_cast<std::int8_t>(number); return find_phase(state);
            case Phase::kDeal: return deal(state, number);
            case Phase::kBid: return bid(state, number - kBid);
            case Phase::kPlay: return play(state, number);
            case Phase::kOver: return;
        }
    }

    float returns(const State& state, int player) const {
        if (!rules_.relative) return share(state, player);
        return margin(state, player);
    }

    /// The own share less the mean of the others'; half of it where penalties let shares lie on both sides of zero.
    float margin(const State& state, int player) const {
        float others = 0.0f;
        for (int other = 0; other < Players; ++other) others += other == player ? 0.0f : share(state, other);
        const float difference = share(state, player) - others / static_cast<float>(Players - 1);
        return rules_.off_bid_penalty ? 0.5f * difference : difference;
    }

    /// Points of a round or game, for people and tests.
    int score(const State& state, int player) const { return state.totals[player]; }

    /// Scalars (the network divides them by 16), by seat: bid + 1, 4 * tricks missing to the bid, 4 * tricks, 16 for the dealer, 16 for
    /// the leader of the trick, total / total_unit; then 16 while bidding, cards, cards in hand, forbidden bid + 1, 16 for no trump, rounds left.
    void observe(const State& state, int player, std::uint8_t* packed) const {
        BitWriter writer(packed);
        const int in_trick = state.phase == Phase::kPlay ? state.num_played % Players : 0;
        blob::Cards trick = 0;
        for (int i = 1; i <= in_trick; ++i) trick |= blob::bit(state.sequence[state.num_played - i]);
        writer.put(state.hands[player], blob::kPack);
        writer.put(trick, blob::kPack);
        writer.put(in_trick > 0 ? blob::suit_cards(led_suit(state)) : 0, blob::kPack);
        writer.put(state.trump >= 0 && state.trump < blob::kNoTrump ? blob::suit_cards(state.trump) : 0, blob::kPack);
        for (int seat = 0; seat < Players; ++seat) writer.put(state.played[at(player, seat)], blob::kPack);
        for (int seat = 0; seat < Players; ++seat) {
            blob::Cards lacking = 0;
            for (int suit = 0; suit < blob::kSuits; ++suit) {
                lacking |= (state.voids[at(player, seat)] >> suit & 1) != 0 ? blob::suit_cards(suit) : 0;
            }
            writer.put(lacking, blob::kPack);
        }
        write_scalars(state, player, writer.finish());
    }

    void hidden(const State& state, int player, std::uint8_t* targets) const {
        for (int seat = 1; seat < Players; ++seat) {
            for (int card = 0; card < blob::kPack; ++card) *targets++ = state.hands[at(player, seat)] >> card & 1;
        }
    }

    void resample(State& state, int player, Rng& rng) const {
        blob::Request<Players> request;
        blob::Cards unseen = blob::kAll & ~state.hands[player];
        blob::Cards hands[Players];
        for (int seat = 1; seat < Players; ++seat) {
            request.wanted[seat - 1] = std::popcount(state.hands[at(player, seat)]);
            request.voids[seat - 1] = state.voids[at(player, seat)];
        }
        for (const blob::Cards cards : state.played) unseen &= ~cards;
        request.size = Players - 1;
        blob::Dealer<Players>(request, unseen, rng).deal(hands);
        for (int seat = 1; seat < Players; ++seat) {
            if (request.wanted[seat - 1] > 0) state.hands[at(player, seat)] = hands[seat - 1];
        }
    }

    int symmetric_action(int symmetry, int action) const {
        if (action >= kBid) return action;
        return blob::kRanks * suit_image(symmetry, blob::suit_of(action)) + action % blob::kRanks;
    }
    int symmetric_cell(int symmetry, int cell) const {
        int suit = 0;
        while (suit_image(symmetry, suit) != blob::suit_of(cell)) ++suit;
        return blob::kRanks * suit + cell % blob::kRanks;
    }

    std::string action_text(const State& state, int number) const;
    std::string text(const State& state) const;
    std::string notation(const State& state) const;
    std::string parse(const std::string& line, State& state) const;
    std::string information_state(const State& state, int player) const;

  private:
    static int at(int player, int seat) { return (player + seat) % Players; }

    /// Symmetry 0..23 as a permutation of the suits, by its number in the factorial system.
    static int suit_image(int symmetry, int suit) {
        int free[blob::kSuits] = {0, 1, 2, 3};
        int radix = 6;
        for (int from = 0;; ++from) {
            const int chosen = symmetry / radix;
            if (from == suit) return free[chosen];
            for (int i = chosen; i + 1 < blob::kSuits - from; ++i) free[i] = free[i + 1];
            symmetry %= radix;
            radix /= blob::kSuits - 1 - from > 0 ? blob::kSuits - 1 - from : 1;
        }
    }

    int num_rounds() const { return rules_.whole_game ? 2 * (rules_.cards - 1) + Players : 1; }

    int cards_of_round(int round) const {
        if (round < rules_.cards - 1) return rules_.cards - round;
        const int after = round - (rules_.cards - 1) - Players;
        return after < 0 ? 1 : 2 + after;
    }

    void begin_round(State& state) const {
        const State before = state;
        state = State{};
        for (int player = 0; player < Players; ++player) {
            state.totals[player] = before.totals[player];
            state.bids[player] = -1;
        }
        state.round = before.round;
        state.dealer = static_cast<std::int8_t>((rules_.dealer + state.round) % Players);
        state.cards = static_cast<std::int8_t>(rules_.whole_game ? cards_of_round(state.round) : (rules_.any_cards ? 0 : rules_.cards));
        state.trump = static_cast<std::int8_t>(rules_.whole_game ? state.round % 5 : rules_.trump);
        state.turn = state.leader = static_cast<std::int8_t>(at(state.dealer, 1));
        find_phase(state);
    }

    static void find_phase(State& state) {
        if (state.cards == 0) state.phase = Phase::kCards;
        else if (state.trump < 0) state.phase = Phase::kTrump;
        else if (state.num_dealt < Players * state.cards) state.phase = Phase::kDeal;
        else state.phase = Phase::kBid;
    }

    static blob::Cards undealt(const State& state) {
        blob::Cards deck = blob::kAll;
        for (int player = 0; player < Players; ++player) deck &= ~(state.hands[player] | state.played[player]);
        return deck;
    }

    /// The next card goes to the dealer's left, and so on round the table.
    static void deal(State& state, int card) {
        state.hands[at(state.dealer, 1 + state.num_dealt % Players)] |= blob::bit(card);
        ++state.num_dealt;
        find_phase(state);
    }

    /// What the hook keeps the dealer from bidding, or -1.
    int forbidden_bid(const State& state) const {
        if (!rules_.hook || state.phase != Phase::kBid || state.turn != state.dealer) return -1;
        int sum = 0;
        for (int player = 0; player < Players; ++player) sum += player == state.dealer ? 0 : state.bids[player];
        return sum <= state.cards ? state.cards - sum : -1;
    }

    static void bid(State& state, int tricks) {
        state.bids[state.turn] = static_cast<std::int8_t>(tricks);
        if (state.turn == state.dealer) state.phase = Phase::kPlay;
        state.turn = static_cast<std::int8_t>(at(state.turn, 1));
    }

    static int led_suit(const State& state) {
        return blob::suit_of(state.sequence[state.num_played - state.num_played % Players]);
    }

    static blob::Cards playable(const State& state) {
        const blob::Cards hand = state.hands[state.turn];
        if (state.num_played % Players == 0) return hand;
        const blob::Cards following = hand & blob::suit_cards(led_suit(state));
        return following != 0 ? following : hand;
    }

    void play(State& state, int card) const {
        const bool leads = state.num_played % Players == 0;
        if (!leads && blob::suit_of(card) != led_suit(state)) {
            state.voids[state.turn] = static_cast<std::uint8_t>(state.voids[state.turn] | 1u << led_suit(state));
        }
        state.hands[state.turn] &= ~blob::bit(card);
        state.played[state.turn] |= blob::bit(card);
        state.sequence[state.num_played++] = static_cast<std::int8_t>(card);
        state.turn = static_cast<std::int8_t>(at(state.turn, 1));
        if (state.num_played % Players == 0) end_trick(state);
        if (state.num_played == Players * state.cards) end_round(state);
    }

    static void end_trick(State& state) {
        int winner = 0;
        int best = -1;
        const int first = state.num_played - Players;
        const int led = blob::suit_of(state.sequence[first]);
        for (int i = 0; i < Players; ++i) {
            const int card = state.sequence[first + i];
            const int suit = blob::suit_of(card);
            const int strength = (suit == state.trump ? 200 : (suit == led ? 100 : 0)) + card % blob::kRanks;
            if (strength > best) {
                best = strength;
                winner = at(state.leader, i);
            }
        }
        ++state.tricks[winner];
        state.turn = state.leader = static_cast<std::int8_t>(winner);
    }

    void end_round(State& state) const {
        for (int player = 0; player < Players; ++player) {
            state.totals[player] = static_cast<std::int16_t>(state.totals[player] + round_score(state.bids[player], state.tricks[player]));
        }
        if (state.round + 1 == num_rounds()) {
            state.phase = Phase::kOver;
            return;
        }
        ++state.round;
        begin_round(state);
    }

    int round_score(int bid, int tricks) const {
        const bool exact = bid == tricks;
        const int off = bid > tricks ? bid - tricks : tricks - bid;
        switch (rules_.scoring) {
            case BlobScoring::kExact: return exact ? 10 + bid : 0;
            case BlobScoring::kSquare: return exact ? 10 + bid * bid : 0;
            case BlobScoring::kPlus: return exact ? 5 + tricks : 0;
            case BlobScoring::kOpenSpiel: break;
        }
        if (rules_.off_bid_penalty && !exact) return -off * rules_.points_per_trick;
        return tricks * rules_.points_per_trick + (exact ? 10 : 0);
    }

    int best_score(int cards) const { return round_score(cards, cards); }

    int most_points(const State& state) const {
        int most = 0;
        for (int round = 0; round < num_rounds(); ++round) most += best_score(rules_.whole_game ? cards_of_round(round) : state.cards);
        return most;
    }

    /// A player's score of the most that could be scored.
    float share(const State& state, int player) const {
        return static_cast<float>(state.totals[player]) / static_cast<float>(most_points(state));
    }

    /// Whether a player can have so many points before a round; says nothing of who else can at the same time.
    bool reachable(int total, int round) const;
    std::string read_head(const std::string& part, State& read) const;
    std::string read_totals(const std::string& part, State& read) const;

    /// Points to a unit of the scalars: 8, and more where 8 would not let the best total into an int8.
    int total_unit(const State& state) const {
        const int least = most_points(state) / 127 + 1;
        return least > 8 ? least : 8;
    }

    void write_scalars(const State& state, int player, std::uint8_t* to) const {
        const auto put = [&](int value) { *to++ = static_cast<std::uint8_t>(value); };
        const int unit = total_unit(state);
        for (int seat = 0; seat < Players; ++seat) {
            const int who = at(player, seat);
            put(state.bids[who] + 1);
            put(state.bids[who] < 0 ? 0 : 4 * (state.bids[who] - state.tricks[who]));
            put(4 * state.tricks[who]);
            put(who == state.dealer ? 16 : 0);
            put(who == state.leader ? 16 : 0);
            put(state.totals[who] / unit);
        }
        put(state.phase == Phase::kBid ? 16 : 0);
        put(state.cards);
        put(std::popcount(state.hands[player]));
        put(player == state.turn ? forbidden_bid(state) + 1 : 0);
        put(state.trump == blob::kNoTrump ? 16 : 0);
        put(num_rounds() - 1 - state.round);
    }

    BlobRules rules_;
};

}  // namespace azq

#include "azq/games/blob/text.hpp"

static_assert(azq::Game<azq::Blob<4>> && azq::HasHidden<azq::Blob<4>> && azq::HasHiddenTargets<azq::Blob<4>>);
