/// The leaves of one collect as rows of a request: moved together, and each asked for once.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "azq/search/cache.hpp"

namespace azq {

/// A leaf as the cache knows it, and the symmetry that takes it there.
struct NamedLeaf {
    Name name;
    std::int32_t symmetry;
};

/// Leaf number slot * most_leaves + k is the k-th leaf of a slot.
class Batch {
  public:
    Batch(int slots, int most_leaves)
        : most_leaves_(most_leaves), counts_(static_cast<std::size_t>(slots), 0),
          rows_(static_cast<std::size_t>(slots) * static_cast<std::size_t>(most_leaves)), owners_(rows_.size()) {
        std::size_t places = 1;
        while (places < 2 * rows_.size()) places *= 2;
        places_.resize(places);
    }

    std::int32_t* counts() { return counts_.data(); }  ///< Leaves of each slot, to be written by the collect.
    int leaves(int slot) const { return counts_[static_cast<std::size_t>(slot)]; }
    std::int32_t row(std::size_t leaf) const { return rows_[leaf]; }
    bool owns(std::size_t leaf) const { return owners_[static_cast<std::size_t>(rows_[leaf])] == static_cast<std::int32_t>(leaf); }

    /// Moves the leaves, rows of bytes at their numbers, together in the order of the slots; writes each row's slot and returns the
    /// number of rows. With `names`, a leaf of the same name as an earlier one shares its row; `merged` grows by their number.
    std::int32_t gather(std::uint8_t* packed, std::size_t row_bytes, std::int32_t* slots, const NamedLeaf* names, std::uint64_t& merged) {
        ++round_;
        std::int32_t rows = 0;
        for (std::size_t slot = 0; slot < counts_.size(); ++slot) {
            for (std::int32_t which = 0; which < counts_[slot]; ++which) {
                const std::size_t leaf = slot * static_cast<std::size_t>(most_leaves_) + static_cast<std::size_t>(which);
                rows_[leaf] = names == nullptr ? rows : row_of(names, leaf, rows);
                if (rows_[leaf] < rows) {
                    ++merged;
                    continue;
                }
                const auto row = static_cast<std::size_t>(rows);
                if (row != leaf) std::memcpy(packed + row * row_bytes, packed + leaf * row_bytes, row_bytes);
                owners_[row] = static_cast<std::int32_t>(leaf);
                slots[row] = static_cast<std::int32_t>(slot);
                ++rows;
            }
        }
        return rows;
    }

  private:
    struct Place {
        std::uint64_t round;
        std::int32_t row;
    };

    /// The row of an earlier leaf of the same name, or `next`, which then is this name's.
    std::int32_t row_of(const NamedLeaf* names, std::size_t leaf, std::int32_t next) {
        const Name& name = names[leaf].name;
        for (auto at = static_cast<std::size_t>(name.check);; ++at) {
            Place& place = places_[at & (places_.size() - 1)];
            if (place.round != round_) {
                place = Place{round_, next};
                return next;
            }
            if (names[owners_[static_cast<std::size_t>(place.row)]].name == name) return place.row;
        }
    }

    int most_leaves_;
    std::vector<std::int32_t> counts_;
    std::vector<std::int32_t> rows_;    ///< By leaf.
    std::vector<std::int32_t> owners_;  ///< By row: the first leaf that asked.
    std::vector<Place> places_;         ///< Names of this round, open addressing.
    std::uint64_t round_ = 0;
};

/// What the leaves of a batch were evaluated to: rows of logits of all actions and of values, under a weight version.
struct Answers {
    const Batch& batch;
    const Half* logits;
    const Half* values;
    std::uint32_t version;
};

}  // namespace azq
