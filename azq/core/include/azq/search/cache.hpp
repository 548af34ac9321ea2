/// Evaluations that were given before, by the name of their observation: games repeat each other's positions, most of all in the
/// opening and across transpositions.
///
/// A direct-mapped table in memory that the caller owns and zeroed, for any number of threads and searches, without a lock:
/// an entry is a few atomic words and their checksum, so one that two threads write at once, or that is read half written,
/// is no entry (Hyatt and Mann, "A lock-less transposition table implementation for parallel search", ICGA Journal 25, 2002).
/// An entry answers only for its own weight version, so a search with the table is the search without it wherever the evaluator
/// is a function of the observation.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "azq/game.hpp"
#include "azq/math.hpp"
#include "azq/prefetch.hpp"

namespace azq {

/// 128 bits that name an observation; two observations share them with probability 2^-128.
struct Name {
    std::uint64_t place;
    std::uint64_t check;

    bool operator==(const Name&) const = default;
};

/// Multipliers and shift of MurmurHash3's finalizer.
inline constexpr std::uint64_t kMixOne = 0xff51afd7ed558ccdu;
inline constexpr std::uint64_t kMixTwo = 0xc4ceb9fe1a85ec53u;

constexpr std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 33)) * kMixOne;
    word = (word ^ (word >> 33)) * kMixTwo;
    return word ^ (word >> 33);
}

/// The name of so many bytes.
inline Name name_of(const std::uint8_t* bytes, std::size_t count) {
    Name name{0x9e3779b97f4a7c15u, 0xd1b54a32d192ed03u};
    for (std::size_t at = 0; at < count; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + at, count - at < 8 ? count - at : 8);
        name.place = (name.place ^ word) * kMixOne;
        name.place ^= name.place >> 32;
        name.check = (name.check + word) * kMixTwo;
        name.check ^= name.check >> 29;
    }
    return Name{mix(name.place), mix(name.check)};
}

template <Game G>
class EvaluationCache {
  public:
    struct Evaluation {
        Half values[kValueSize<G>];
        Half logits[G::kNumActions];
    };

    /// What a place in the table takes: the words of the evaluation behind one that is the name's check and their checksum in one, and
    /// one that says at a glance whose evaluation it is not.
    struct Entry {
        static constexpr std::size_t kWords = (sizeof(Evaluation) + 7) / 8;
        std::atomic<std::uint64_t> seal;
        std::atomic<std::uint64_t> label;
        std::atomic<std::uint64_t> words[kWords];
    };

    /// `entries`: a power of two.
    EvaluationCache(std::byte* memory, std::size_t entries) : table_(reinterpret_cast<Entry*>(memory)), entries_(entries) {}

    std::size_t entries() const { return entries_; }

    /// Starts fetching what `find` reads first.
    void prefetch(const Name& name) const { prefetch_lines(&at(name)); }

    /// Starts fetching what `put` writes (its first lines, where it is much).
    void prefetch_put(const Name& name) const {
        constexpr std::size_t kLines = sizeof(Entry) / kLine < 5 ? sizeof(Entry) / kLine + 1 : 5;
        prefetch_lines(&at(name), kLines);
    }

    /// Reads the evaluation of an observation under a weight version; false where it is not here.
    bool find(const Name& name, std::uint32_t weight_version, Evaluation& found) const {
        const Entry& entry = at(name);
        const std::uint64_t label = label_of(name, weight_version);
        if (entry.label.load(std::memory_order_relaxed) != label) return false;
        const std::uint64_t seal = entry.seal.load(std::memory_order_relaxed);
        Words words;
        for (std::size_t i = 0; i < Entry::kWords; ++i) words[i] = entry.words[i].load(std::memory_order_relaxed);
        if (seal != sealed(name, label, words)) return false;
        std::memcpy(&found, words.data(), sizeof found);
        return true;
    }

    /// Remembers an evaluation in the place of whatever is there.
    void put(const Name& name, const Half* logits, const Half* values, std::uint32_t weight_version) {
        Evaluation evaluation;
        std::memcpy(evaluation.values, values, sizeof evaluation.values);
        std::memcpy(evaluation.logits, logits, sizeof evaluation.logits);
        Words words{};
        std::memcpy(words.data(), &evaluation, sizeof evaluation);
        const std::uint64_t label = label_of(name, weight_version);
        Entry& entry = at(name);
        entry.label.store(label, std::memory_order_relaxed);
        for (std::size_t i = 0; i < Entry::kWords; ++i) entry.words[i].store(words[i], std::memory_order_relaxed);
        entry.seal.store(sealed(name, label, words), std::memory_order_relaxed);
    }

  private:
    using Words = std::array<std::uint64_t, Entry::kWords>;

    /// Half of a name's check, and the weight version.
    static std::uint64_t label_of(const Name& name, std::uint32_t weight_version) { return name.check >> 32 << 32 | weight_version; }

    /// Each word is scrambled by itself and with its place, so that words of two entries do not make up a third.
    static std::uint64_t sealed(const Name& name, std::uint64_t label, const Words& words) {
        std::uint64_t sum = name.check + label * kMixOne;
        for (std::size_t i = 0; i < Entry::kWords; ++i) {
            const std::uint64_t scrambled = (words[i] ^ (name.check + i)) * kMixOne;
            sum += (scrambled ^ (scrambled >> 32)) * kMixTwo;
        }
        return sum;
    }

    Entry& at(const Name& name) const { return table_[name.place & (entries_ - 1)]; }

    Entry* table_;
    std::size_t entries_;
};

}  // namespace azq
