/// The Python class Search: arrays, errors and threads around an AnySearch.
#pragma once

#include <atomic>
#include <stdexcept>

#include "arrays.hpp"
#include "errors.hpp"
#include "python_game.hpp"
#include "threads.hpp"

namespace azq::bind {

/// The Python class Record: a game so far, its arrays made when they are looked at.
struct PyRecord {
    GameRecord game;
    std::vector<float> returns;
    bool terminal;
    std::size_t num_actions, value_size;
};

/// The Python class EvaluationCache.
struct PyCache {
    PyCache(const PyGame& of, std::size_t entries);

    PyGame game;
    std::shared_ptr<AnyCache> cache;
};

template <class T, int Dimensions>
using OptionalInput = std::optional<Input<T, Dimensions>>;

class PySearch {
  public:
    PySearch(const PyGame& game, const SearchConfig& config, int num_slots, std::uint64_t seed, int num_threads, bool autoplay,
             const PyCache* cache, bool merge_symmetries);

    void start(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions, const OptionalInput<Half, 2>& policies,
               const OptionalInput<float, 2>& root_values, const OptionalInput<std::uint16_t, 1>& simulations,
               const OptionalInput<std::uint32_t, 1>& weight_versions);
    void start_at(int slot, std::uint64_t uid, const PyState& state);
    void clear(int slot);
    int collect(const Output<std::uint8_t, 2>& packed, const Output<std::int32_t, 1>& slots);
    void apply(const Input<Half, 2>& logits, const Input<Half, 2>& values, std::uint32_t weight_version);
    std::uint64_t run_uniform(std::uint64_t max_simulations);

    std::vector<int> slots_with(SlotStatus status) const;
    std::vector<int> changed_slots();
    PyRecord record(int slot) const;
    RootStatistics result(int slot);
    void play(int slot, int action);
    PyState state(int slot) const;
    nb::dict tree(int slot);

    int num_slots() const { return search_->num_slots(); }
    Totals totals();
    std::uint64_t merged() const { return merged_; }
    std::size_t memory_bytes() const { return search_->memory_bytes(); }

  private:
    /// Marks the object as working while the GIL is released; a second Python thread gets an error instead of a data race.
    class Working {
      public:
        explicit Working(std::atomic<bool>& flag) : flag_(flag) {
            if (flag_.exchange(true)) raise_runtime("this search is already working in another thread");
        }
        ~Working() { flag_.store(false); }
        Working(const Working&) = delete;
        Working& operator=(const Working&) = delete;

      private:
        std::atomic<bool>& flag_;
    };

    void check_slot(int slot) const;
    void check_filled(int slot) const;
    void check_still(int slot);
    Answers answers() const { return {batch_, logits_.data(), values_.data(), version_}; }
    void remember(const Answers& given);
    void give_answers();
    int piece() const;
    GameRecord replayed(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions) const;

    PyGame game_;
    SearchConfig config_;
    std::unique_ptr<AnySearch> search_;
    bool autoplay_;
    int num_threads_;
    LazyThreads threads_;
    std::atomic<bool> working_{false};
    Batch batch_;               ///< Of the last collect.
    int awaited_ = 0;           ///< Its rows that apply has not had yet.
    std::vector<Half> logits_;  ///< What apply had. The next collect gives it to each tree as it comes to it, which then needs no second
    std::vector<Half> values_;  ///< way into the caches; nothing that can be asked of a slot before depends on it but its tree.
    std::uint32_t version_ = 0;
    bool answered_ = false;     ///< The trees have not had it yet.
    std::uint64_t merged_ = 0;  ///< Leaves so far that shared the row of another tree's.
};

}  // namespace azq::bind
