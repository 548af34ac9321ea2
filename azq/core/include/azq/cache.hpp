/// Evaluations that were given before, by packed observation: games of one search repeat each other's positions, most of all
/// in the opening and across transpositions.
///
/// A direct-mapped table in memory that the caller owns and zeroed. An entry answers only for its own weight version, so a
/// search with the table is the search without it wherever the evaluator is a function of the observation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "azq/game.hpp"
#include "azq/math.hpp"

namespace azq {

template <Game G>
class EvaluationCache {
  public:
    struct Entry {
        std::uint8_t key[kPackedSize<G>];
        std::uint8_t used;
        Half values[kValueSize<G>];
        Half logits[G::kNumActions];
        std::uint32_t weight_version;
    };

    /// `entries`: a power of two, or 0 for a cache that never knows anything.
    void attach(std::byte* memory, std::size_t entries) {
        table_ = reinterpret_cast<Entry*>(memory);
        entries_ = entries;
    }

    bool enabled() const { return entries_ > 0; }

    /// The evaluation of an observation under a weight version, or null.
    const Entry* find(const std::uint8_t* packed, std::uint32_t weight_version) const {
        if (!enabled()) return nullptr;
        const Entry& entry = table_[index(packed)];
        const bool same = entry.used && entry.weight_version == weight_version && std::memcmp(entry.key, packed, kPackedSize<G>) == 0;
        return same ? &entry : nullptr;
    }

    /// Remembers an evaluation in the place of whatever hashes there.
    void put(const std::uint8_t* packed, const Half* logits, const Half* values, std::uint32_t weight_version) {
        Entry& entry = table_[index(packed)];
        std::memcpy(entry.key, packed, kPackedSize<G>);
        std::memcpy(entry.logits, logits, sizeof entry.logits);
        std::memcpy(entry.values, values, sizeof entry.values);
        entry.weight_version = weight_version;
        entry.used = 1;
    }

  private:
    std::size_t index(const std::uint8_t* packed) const {
        std::uint64_t hash = 0x9e3779b97f4a7c15u;
        for (std::size_t at = 0; at < kPackedSize<G>; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, packed + at, kPackedSize<G> - at < 8 ? kPackedSize<G> - at : 8);
            hash = (hash ^ word) * 0xff51afd7ed558ccdu;  // the multiplier and shift of MurmurHash3's finalizer
            hash ^= hash >> 33;
        }
        return static_cast<std::size_t>(hash & (entries_ - 1));
    }

    Entry* table_ = nullptr;
    std::size_t entries_ = 0;
};

}  // namespace azq
