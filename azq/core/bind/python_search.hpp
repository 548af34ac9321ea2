/// The Python class Search: arrays, errors and threads around an AnySearch.
#pragma once

#include <atomic>
#include <stdexcept>

#include "arrays.hpp"
#include "errors.hpp"
#include "python_game.hpp"
#include "threads.hpp"

namespace azq::bind {

/// Fields of a GameRecord as NumPy arrays.
struct PyRecord {
    std::uint64_t uid;
    nb::object actions, policies, root_values, simulations, weight_versions, returns;
    bool terminal;
};

struct PyResult {
    int action, best_action;
    nb::object policy, visit_counts, q_values, prior_logits;
    float root_value;
    bool proven;
};

template <class T, int Dimensions>
using OptionalInput = std::optional<Input<T, Dimensions>>;

class PySearch {
  public:
    PySearch(const PyGame& game, const SearchConfig& config, int num_slots, std::uint64_t seed, int num_threads, bool autoplay,
             std::size_t cache_entries);

    void start(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions, const OptionalInput<Half, 2>& policies,
               const OptionalInput<float, 2>& root_values, const OptionalInput<std::uint16_t, 1>& simulations,
               const OptionalInput<std::uint32_t, 1>& weight_versions);
    void start_at(int slot, std::uint64_t uid, const PyState& state);
    void clear(int slot);
    int collect(const Output<std::uint8_t, 2>& packed, const Output<std::int32_t, 1>& slots);
    void apply(const Input<Half, 2>& logits, const Input<Half, 2>& values, std::uint32_t weight_version);
    std::uint64_t run_uniform(std::uint64_t max_simulations);

    std::vector<int> slots_with(Slot status) const;
    std::vector<int> changed_slots();
    PyRecord record(int slot) const;
    PyResult result(int slot) const;
    void play(int slot, int action);
    PyState state(int slot) const;
    nb::dict tree(int slot) const;

    int num_slots() const { return search_->num_slots(); }
    std::uint64_t simulations() const { return search_->simulations(); }
    std::uint64_t evaluations() const { return search_->evaluations(); }
    std::uint64_t cache_hits() const { return search_->cache_hits(); }
    std::uint64_t plies() const { return search_->plies(); }
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
    void check_still(int slot) const;
    int piece() const;
    int compact(std::uint8_t* packed, std::int32_t* slots);
    GameRecord replayed(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions) const;

    PyGame game_;
    SearchConfig config_;
    std::unique_ptr<AnySearch> search_;
    bool autoplay_;
    int num_threads_;
    LazyThreads threads_;
    std::atomic<bool> working_{false};
    std::vector<std::int32_t> leaf_counts_;  ///< Per slot, of the last collect.
    std::vector<std::int32_t> offsets_;      ///< Per slot: its first row in that collect's arrays.
    int awaited_ = 0;                        ///< Leaves of the last collect that apply has not had yet.
};

}  // namespace azq::bind
