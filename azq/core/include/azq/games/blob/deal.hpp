/// Dealing hidden cards again, uniformly over all deals in which nobody holds a suit he failed to follow.
///
/// Players with the same voids are one bin; the undealt cards and the players without voids are the free bin, which takes what
/// is left. Bins are filled in turn: how many cards of each suit a bin gets is drawn with the number of completions as weight, so
/// every deal is equally likely and none is ever rejected. The completions of the last bin are one binomial coefficient.
#pragma once

#include "azq/games/blob/cards.hpp"
#include "azq/rng.hpp"

namespace azq::blob {

/// Cards to hand out to `size` players, each with so many to get and some suits (bits) to get none of.
template <int MaxPlayers>
struct Request {
    int size = 0;
    int wanted[MaxPlayers];
    unsigned voids[MaxPlayers];
};

inline double choose(int n, int k) {
    if (k < 0 || k > n) return 0.0;
    double ways = 1.0;
    for (int i = 1; i <= k; ++i) ways = ways * static_cast<double>(n - k + i) / static_cast<double>(i);
    return ways;
}

/// Fills `hands` from `unseen`; what is left over stays undealt. There must be a deal that fits.
template <int MaxPlayers>
class Dealer {
  public:
    Dealer(const Request<MaxPlayers>& request, Cards unseen, Rng& rng) : request_(request), rng_(rng) {
        for (int suit = 0; suit < kSuits; ++suit) left_[suit] = unseen & suit_cards(suit);
        for (int player = 0; player < request.size; ++player) {
            if (request.wanted[player] > 0 && request.voids[player] != 0) add_to_bin(player);
        }
    }

    void deal(Cards* hands) {
        for (int bin = 0; bin < bins_; ++bin) {
            Cards cards = 0;
            int counts[kSuits];
            draw_counts(bin, counts);
            for (int suit = 0; suit < kSuits; ++suit) cards |= take(suit, counts[suit]);
            share(cards, [&](int player) { return request_.voids[player] == mask_[bin]; }, hands);
        }
        share(left_[0] | left_[1] | left_[2] | left_[3], [&](int player) { return request_.voids[player] == 0; }, hands);
    }

  private:
    void add_to_bin(int player) {
        int bin = 0;
        while (bin < bins_ && mask_[bin] != request_.voids[player]) ++bin;
        if (bin == bins_) {
            mask_[bins_] = request_.voids[player];
            wanted_[bins_++] = 0;
        }
        wanted_[bin] += request_.wanted[player];
    }

    /// Ways to fill the bins from `bin` on, with so many cards of each suit left.
    double completions(int bin, const int* sizes) const {
        if (bin == bins_) return 1.0;
        if (bin + 1 == bins_) {
            int allowed = 0;
            for (int suit = 0; suit < kSuits; ++suit) allowed += (mask_[bin] >> suit & 1) != 0 ? 0 : sizes[suit];
            return choose(allowed, wanted_[bin]);
        }
        double ways = 0.0;
        int counts[kSuits];
        for_each_split(bin, sizes, 0, wanted_[bin], 1.0, counts, [&](double weight, const int* rest) { ways += weight * completions(bin + 1, rest); });
        return ways;
    }

    /// Calls visit(ways, sizes left) for every number of cards of each suit that the bin may take; `counts` holds them meanwhile.
    template <class Visit>
    void for_each_split(int bin, const int* sizes, int suit, int wanted, double ways, int* counts, Visit&& visit) const {
        if (suit == kSuits) {
            if (wanted != 0) return;
            int rest[kSuits];
            for (int s = 0; s < kSuits; ++s) rest[s] = sizes[s] - counts[s];
            visit(ways, static_cast<const int*>(rest));
            return;
        }
        const int most = (mask_[bin] >> suit & 1) != 0 ? 0 : (sizes[suit] < wanted ? sizes[suit] : wanted);
        for (int count = 0; count <= most; ++count) {
            counts[suit] = count;
            for_each_split(bin, sizes, suit + 1, wanted - count, ways * choose(sizes[suit], count), counts, visit);
        }
    }

    void draw_counts(int bin, int* counts) {
        int sizes[kSuits];
        for (int suit = 0; suit < kSuits; ++suit) sizes[suit] = std::popcount(left_[suit]);
        double target = static_cast<double>(rng_.uniform()) * completions(bin, sizes);
        bool found = false;
        int split[kSuits] = {};
        for_each_split(bin, sizes, 0, wanted_[bin], 1.0, split, [&](double weight, const int* rest) {
            const double ways = weight * completions(bin + 1, rest);
            if (found || ways <= 0.0) return;
            for (int suit = 0; suit < kSuits; ++suit) counts[suit] = sizes[suit] - rest[suit];  // the last possible one, should rounding run over
            target -= ways;
            found = target < 0.0;
        });
    }

    /// Takes so many cards of a suit, each as likely as the others.
    Cards take(int suit, int count) {
        Cards taken = 0;
        for (; count > 0; --count) {
            Cards rest = left_[suit];
            for (int skip = rng_.below(std::popcount(rest)); skip > 0; --skip) rest &= rest - 1;
            const Cards card = rest & ~(rest - 1);
            taken |= card;
            left_[suit] &= ~card;
        }
        return taken;
    }

    /// Hands a bin's cards to its players, shuffled as far as they are wanted.
    template <class Member>
    void share(Cards cards, Member&& member, Cards* hands) {
        std::uint8_t order[kPack];
        int size = 0;
        for (; cards != 0; cards &= cards - 1) order[size++] = static_cast<std::uint8_t>(std::countr_zero(cards));
        int next = 0;
        for (int player = 0; player < request_.size; ++player) {
            if (!member(player)) continue;
            hands[player] = 0;
            for (int card = 0; card < request_.wanted[player]; ++card, ++next) {
                const int drawn = next + rng_.below(size - next);
                const std::uint8_t swapped = order[drawn];
                order[drawn] = order[next];
                hands[player] |= bit(swapped);
            }
        }
    }

    const Request<MaxPlayers>& request_;
    Rng& rng_;
    Cards left_[kSuits] = {};
    unsigned mask_[MaxPlayers] = {};
    int wanted_[MaxPlayers] = {};
    int bins_ = 0;
};

}  // namespace azq::blob
