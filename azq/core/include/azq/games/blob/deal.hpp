/// Dealing hidden cards again, uniformly over all deals in which nobody holds a suit he failed to follow.
///
/// Players with the same voids are one bin; the undealt cards and the players without voids are the free bin, which takes what
/// is left. Bins are filled in turn. Suits that the same later bins may get are one pool: how many cards of each pool a bin gets is
/// drawn with the number of completions as weight, so every deal is equally likely and none is ever rejected. The last bin has
/// one pool, and the one before it two at most, so two kinds of voids cost one sum of binomial coefficients.
#pragma once

#include <array>
#include <utility>

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

/// Pascal's triangle; row n, entry k: the sets of k out of n cards.
inline constexpr auto kChoose = [] {
    std::array<std::array<double, kPack + 1>, kPack + 1> rows{};
    for (std::size_t n = 0; n <= kPack; ++n) {
        rows[n][0] = 1.0;
        for (std::size_t k = 1; k <= n; ++k) rows[n][k] = rows[n - 1][k - 1] + rows[n - 1][k];
    }
    return rows;
}();

inline double choose(int n, int k) { return kChoose[static_cast<std::size_t>(n)][static_cast<std::size_t>(k)]; }

/// How many cards there are that may go to the same bins; bit 0 is the bin to be filled next.
struct Pools {
    int count = 0;
    unsigned bins[kSuits];
    int size[kSuits];

    /// Returns the pool that took the cards in.
    int add(unsigned to, int cards) {
        int pool = 0;
        while (pool < count && bins[pool] != to) ++pool;
        if (pool == count) {
            bins[count] = to;
            size[count++] = 0;
        }
        size[pool] += cards;
        return pool;
    }
};

/// Fills `hands` from `unseen`; what is left over stays undealt. There must be a deal that fits.
template <int MaxPlayers>
class Dealer {
  public:
    Dealer(const Request<MaxPlayers>& request, Cards unseen, Rng& rng) : request_(request), left_(unseen), rng_(rng) {
        for (int player = 0; player < request.size; ++player) {
            if (request.wanted[player] > 0 && request.voids[player] != 0) add_to_bin(player);
        }
        // Few ways first: the bins in front are enumerated one inside the other, the last two are not.
        for (int bin = 1; bin < bins_; ++bin) {
            for (int at = bin; at > 0 && effort(at) < effort(at - 1); --at) {
                std::swap(mask_[at], mask_[at - 1]);
                std::swap(wanted_[at], wanted_[at - 1]);
            }
        }
    }

    void deal(Cards* hands) {
        for (int bin = 0; bin < bins_; ++bin) {
            const Cards cards = draw(bin);
            left_ &= ~cards;
            share(cards, [&](int player) { return request_.voids[player] == mask_[bin]; }, hands);
        }
        share(left_, [&](int player) { return request_.voids[player] == 0; }, hands);
    }

  private:
    /// Three pools of one suit each, the size of one of them given by the others.
    static constexpr int kMaxSplits = (kRanks + 1) * (kRanks + 1);

    void add_to_bin(int player) {
        int bin = 0;
        while (bin < bins_ && mask_[bin] != request_.voids[player]) ++bin;
        if (bin == bins_) {
            mask_[bins_] = request_.voids[player];
            wanted_[bins_++] = 0;
        }
        wanted_[bin] += request_.wanted[player];
    }

    int effort(int bin) const { return kPack * (kSuits - std::popcount(mask_[bin])) + wanted_[bin]; }

    /// Bins from `bin` on that may get a suit.
    unsigned takers_of(int suit, int bin) const {
        unsigned bins = 0;
        for (int later = bin; later < bins_; ++later) bins |= (mask_[later] >> suit & 1u) == 0 ? 1u << (later - bin) : 0u;
        return bins;
    }

    /// Ways to fill the bins from `bin` on.
    double completions(int bin, const Pools& pools) const {
        Pools mine;
        Pools others;
        for (int pool = 0; pool < pools.count; ++pool) {
            ((pools.bins[pool] & 1u) != 0 ? mine : others).add(pools.bins[pool] >> 1, pools.size[pool]);
        }
        if (mine.count == 0) return 0.0;
        if (bin + 1 == bins_) return choose(mine.size[0], wanted_[bin]);
        double ways = 0.0;
        int counts[kSuits];
        for_each_split(mine, 0, wanted_[bin], 1.0, counts, [&](double weight) { ways += weight * completions(bin + 1, rest(mine, counts, others)); });
        return ways;
    }

    static Pools rest(const Pools& mine, const int* counts, Pools others) {
        for (int pool = 0; pool < mine.count; ++pool) others.add(mine.bins[pool], mine.size[pool] - counts[pool]);
        return others;
    }

    /// Calls visit(ways) for every number of cards of each pool that make up `wanted`; `counts` holds them meanwhile.
    template <class Visit>
    static void for_each_split(const Pools& pools, int pool, int wanted, double ways, int* counts, Visit&& visit) {
        const int size = pools.size[pool];
        if (pool + 1 == pools.count || pool + 1 == kSuits) {
            counts[pool] = wanted;
            if (wanted <= size) visit(ways * choose(size, wanted));
            return;
        }
        for (int count = 0; count <= size && count <= wanted; ++count) {
            counts[pool] = count;
            for_each_split(pools, pool + 1, wanted - count, ways * choose(size, count), counts, visit);
        }
    }

    /// A bin's cards.
    Cards draw(int bin) {
        Pools mine;
        Pools others;
        Cards cards[kSuits] = {};
        for (int suit = 0; suit < kSuits; ++suit) {
            const unsigned bins = takers_of(suit, bin);
            const Cards unseen = left_ & suit_cards(suit);
            if ((bins & 1u) == 0) others.add(bins >> 1, std::popcount(unseen));
            else cards[mine.add(bins >> 1, std::popcount(unseen))] |= unseen;
        }
        int counts[kSuits] = {wanted_[bin]};
        if (mine.count > 1) draw_counts(bin, mine, others, counts);
        Cards drawn = 0;
        for (int pool = 0; pool < mine.count; ++pool) drawn |= take(cards[pool], counts[pool]);
        return drawn;
    }

    /// How many cards of each pool a bin gets.
    void draw_counts(int bin, const Pools& mine, const Pools& others, int* counts) {
        double sums[kMaxSplits];
        int splits[kMaxSplits][kSuits];
        int size = 0;
        double total = 0.0;
        int split[kSuits] = {};
        for_each_split(mine, 0, wanted_[bin], 1.0, split, [&](double weight) {
            const double ways = bin + 1 == bins_ ? weight : weight * completions(bin + 1, rest(mine, split, others));
            if (ways <= 0.0) return;
            total += ways;
            sums[size] = total;
            for (int pool = 0; pool < mine.count; ++pool) splits[size][pool] = split[pool];
            ++size;
        });
        const double target = uniform() * total;
        int chosen = 0;
        while (chosen + 1 < size && sums[chosen] <= target) ++chosen;
        for (int pool = 0; pool < mine.count; ++pool) counts[pool] = splits[chosen][pool];
    }

    /// In [0, 1): 53 bits, since one way in 2^23 is not rare among the deals of a pack.
    double uniform() {
        const std::uint64_t high = rng_.next();
        return static_cast<double>((high << 32 | rng_.next()) >> 11) * 0x1p-53;
    }

    /// So many cards of a set, each as likely as the others.
    Cards take(Cards from, int count) {
        Cards taken = 0;
        for (int size = std::popcount(from); count > 0; --count, --size) {
            Cards rest = from;
            for (int skip = rng_.below(size); skip > 0; --skip) rest &= rest - 1;
            const Cards card = rest & ~(rest - 1);
            taken |= card;
            from &= ~card;
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
    Cards left_;
    Rng& rng_;
    unsigned mask_[MaxPlayers] = {};
    int wanted_[MaxPlayers] = {};
    int bins_ = 0;
};

}  // namespace azq::blob
