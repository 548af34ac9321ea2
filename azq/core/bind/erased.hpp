/// A game's templates behind the interfaces of any_game.hpp.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <limits>
#include <new>

#include "azq/cache.hpp"
#include "azq/search.hpp"
#include "erased_state.hpp"

namespace azq::bind {

/// One zeroed mapping of blocks. Pages come from the system as they are first touched; large ones where it has them, because
/// with thousands of trees every step is also a miss in the address translation (measured: 1.4 times as many simulations).
class Arena {
  public:
    Arena(std::size_t blocks, std::size_t block_bytes) : bytes_(blocks * block_bytes), block_bytes_(block_bytes) {
        if (bytes_ == 0) return;
        void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
        if (bytes_ >= kLargePage) madvise(memory, bytes_, MADV_HUGEPAGE);  // a wish: refused, it changes nothing but speed
#endif
    }
    ~Arena() {
        if (memory_ != nullptr) munmap(memory_, bytes_);
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    std::size_t bytes() const { return bytes_; }
    std::byte* block(std::size_t index) const { return memory_ + index * block_bytes_; }

  private:
    static constexpr std::size_t kLargePage = std::size_t{2} << 20;

    std::size_t bytes_;
    std::size_t block_bytes_;
    std::byte* memory_ = nullptr;
};

template <Game G>
class ErasedSearch final : public AnySearch {
  public:
    ErasedSearch(const G& rules, const SearchConfig& config, int num_slots, std::uint64_t seed, bool autoplay,
                 std::size_t cache_entries)
        : context_(rules, config, seed, autoplay),
          arena_(static_cast<std::size_t>(num_slots), block_bytes(context_.node_capacity())),
          cache_memory_(cache_entries, sizeof(typename EvaluationCache<G>::Entry)) {
        cache_.attach(cache_memory_.block(0), cache_entries);
        slots_.reserve(static_cast<std::size_t>(num_slots));
        for (int slot = 0; slot < num_slots; ++slot) slots_.emplace_back(context_, arena_.block(static_cast<std::size_t>(slot)));
    }

    int num_slots() const override { return static_cast<int>(slots_.size()); }
    std::size_t memory_bytes() const override { return arena_.bytes() + cache_memory_.bytes() + slots_.size() * sizeof(GameSearch<G>); }
    Slot status(int slot) const override { return static_cast<Slot>(at(slot).status()); }
    int pending(int slot) const override { return at(slot).pending(); }
    bool take_changed(int slot) override { return at(slot).take_changed(); }
    const GameRecord& record(int slot) const override { return at(slot).record(); }
    TreeTable tree(int slot) const override { return tabulate<G>(at(slot).tree()); }
    void start(int slot, GameRecord record) override { at(slot).start(std::move(record)); }
    void start_at(int slot, std::uint64_t uid, const AnyState& state) override {
        at(slot).start_at(uid, static_cast<const ErasedState<G>&>(state).state());
    }
    void clear(int slot) override { at(slot).clear(); }
    void play(int slot, int action) override { at(slot).play(action, scratch().data()); }

    std::unique_ptr<AnyState> state(int slot) const override {
        return std::make_unique<ErasedState<G>>(context_.rules, at(slot).state());
    }

    RootStatistics result(int slot) const override {
        const GameSearch<G>& game = at(slot);
        const Decision<G> decision = game.decide();
        const auto& root = game.tree().root();
        const Edges edges = game.tree().edges(0);
        RootStatistics result{decision.action, decision.best_action, decision.root_value, decision.proven,
                              std::vector<float>(decision.policy, decision.policy + G::kNumActions),
                              std::vector<std::int32_t>(G::kNumActions, 0),
                              std::vector<float>(G::kNumActions, std::numeric_limits<float>::quiet_NaN()),
                              std::vector<float>(G::kNumActions, -std::numeric_limits<float>::infinity())};
        for (int i = 0; i < edges.count; ++i) {
            const std::size_t action = edges.action[i];
            result.visit_counts[action] = edges.visits[i];
            result.prior_logits[action] = edges.logit[i];
            if (edges.visits[i] > 0) result.q_values[action] = root.sign() * edges.q[i] + 0.0f;
        }
        return result;
    }

    /// Steps a window of trees in turn: while one tree's next node is fetched from memory, the others work.
    void collect(int first, int last, std::uint8_t* packed, std::int32_t* counts) override {
        std::vector<std::int32_t> remap = scratch();
        int window[kWindow];
        int open = 0;
        int next = first;
        while (open < kWindow && next < last) admit(window[open++] = next++);
        while (open > 0) {
            for (int i = 0; i < open;) {
                const int slot = window[i];
                if (step(slot, remap.data(), packed)) {
                    ++i;
                    continue;
                }
                counts[slot] = at(slot).pending();
                if (next < last) {
                    admit(window[i++] = next++);
                } else {
                    window[i] = window[--open];
                }
            }
        }
    }

    void remember(const std::int32_t* offsets, const Half* logits, const Half* values, std::uint32_t version) override {
        version_ = version;
        if (!cache_.enabled()) return;
        std::uint8_t packed[kPackedSize<G>];
        for (int slot = 0; slot < num_slots(); ++slot) {
            for (int which = 0, leaves = pending(slot); which < leaves; ++which) {
                const auto row = static_cast<std::size_t>(offsets[slot] + which);
                const auto& state = at(slot).pending_state(which);
                context_.rules.observe(state, context_.rules.mover(state), packed);
                cache_.put(packed, logits + row * G::kNumActions, values + row * kValueSize<G>, version);
            }
        }
    }

    void apply(int first, int last, const std::int32_t* offsets, const Half* logits, const Half* values, std::uint32_t version) override {
        for (int slot = first; slot < last; ++slot) {
            if (slot + kAhead < last) at(slot + kAhead).prefetch_pending();
            const int leaves = at(slot).pending();
            for (int which = 0; which < leaves; ++which) {
                const auto row = static_cast<std::size_t>(offsets[slot] + which);
                at(slot).apply(which, logits + row * G::kNumActions, values + row * kValueSize<G>, version);
            }
        }
    }

    std::uint64_t run_uniform(int first, int last, const std::function<std::uint64_t(int)>& quota) override {
        std::vector<std::int32_t> remap = scratch();
        std::uint64_t done = 0;
        for (int slot = first; slot < last; ++slot) {
            if (status(slot) == Slot::kEmpty) {
                GameRecord fresh;
                fresh.uid = static_cast<std::uint64_t>(slot);
                start(slot, std::move(fresh));
            }
            done += at(slot).run_uniform(quota(slot), slots_.size(), remap.data());
        }
        return done;
    }

    std::uint64_t simulations() const override {
        return total([](const GameSearch<G>& game) { return game.simulations(); });
    }
    std::uint64_t evaluations() const override {
        return total([](const GameSearch<G>& game) { return game.evaluations(); }) - cache_hits_.load();
    }
    std::uint64_t cache_hits() const override { return cache_hits_.load(); }
    std::uint64_t plies() const override {
        return total([](const GameSearch<G>& game) { return game.plies(); });
    }

  private:
    static constexpr int kWindow = 16;  ///< Trees stepped in turn: about as many cache misses as a core keeps in flight.
    static constexpr std::size_t kLine = 64;
    static constexpr int kAhead = 4;    ///< Slots between the fetching of a path and its use.

    /// Odd in cache lines, so that the roots of many trees do not fall into the same cache sets.
    static std::size_t block_bytes(int node_capacity) { return ((SearchOf<G>::memory_bytes(node_capacity) + kLine - 1) / kLine | 1) * kLine; }

    void admit(int slot) const { at(slot).prefetch_root(); }

    /// One step of a tree. A leaf that the cache knows is evaluated at once; with several leaves in flight they must keep
    /// their order, so then the cache is not asked.
    bool step(int slot, std::int32_t* remap, std::uint8_t* packed) {
        const int leaves = context_.config.leaves_per_step;
        std::uint8_t* row = nullptr;
        const bool moving = at(slot).advance(remap, [&](int which, const typename G::State& state) {
            row = packed + (std::int64_t{slot} * leaves + which) * static_cast<std::int64_t>(kPackedSize<G>);
            context_.rules.observe(state, context_.rules.mover(state), row);
        });
        if (row == nullptr || leaves > 1) return moving;
        const auto* known = cache_.find(row, version_);
        if (known == nullptr) return moving;
        at(slot).apply(0, known->logits, known->values, version_);
        cache_hits_.fetch_add(1, std::memory_order_relaxed);
        return true;
    }

    std::vector<std::int32_t> scratch() const {
        if constexpr (kSampled<G>) return {};  // nothing is kept from ply to ply
        else return std::vector<std::int32_t>(Tree<G>::capacity_lines(context_.node_capacity()));
    }
    GameSearch<G>& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
    const GameSearch<G>& at(int slot) const { return slots_[static_cast<std::size_t>(slot)]; }

    template <class Count>
    std::uint64_t total(Count&& count) const {
        std::uint64_t sum = 0;
        for (const GameSearch<G>& game : slots_) sum += count(game);
        return sum;
    }

    SearchContext<G> context_;
    Arena arena_;
    Arena cache_memory_;
    EvaluationCache<G> cache_;   ///< Written by `remember` alone, so that threads may read it while they collect.
    std::uint32_t version_ = 0;  ///< Weight version of the last evaluations.
    std::atomic<std::uint64_t> cache_hits_{0};
    std::vector<GameSearch<G>> slots_;
};

template <Game G>
class ErasedGame final : public AnyGame {
  public:
    ErasedGame(const G& rules, const Params& params) : rules_(rules), params_(params) {}

    std::string name() const override { return G::kName; }
    const Params& params() const override { return params_; }

    Dimensions dimensions() const override {
        Dimensions size{};
        size.players = G::kNumPlayers;
        size.actions = G::kNumActions;
        size.max_length = G::kMaxLength;
        size.planes = G::kPlanes;
        size.rows = G::kRows;
        size.columns = G::kColumns;
        size.scalars = G::kNumScalars;
        size.packed_size = kPackedSize<G>;
        size.symmetries = G::kNumSymmetries;
        size.value_size = kValueSize<G>;
        if constexpr (HasChance<G>) size.max_outcomes = G::kMaxOutcomes;
        if constexpr (HasOutcomeTargets<G>) size.outcome_targets = G::kNumOutcomeTargets;
        if constexpr (HasHiddenTargets<G>) size.hidden = G::kNumHidden;
        size.has_margin = HasMargin<G>;
        size.has_hidden = HasHidden<G>;
        size.sampled = kSampled<G>;
        return size;
    }

    std::unique_ptr<AnyState> new_initial_state() const override { return std::make_unique<ErasedState<G>>(rules_, rules_.initial()); }

    std::pair<std::unique_ptr<AnyState>, std::string> parse(const std::string& notation) const override {
        typename G::State state = rules_.initial();
        std::string broken = rules_.parse(notation, state);
        if (!broken.empty()) return {nullptr, std::move(broken)};
        return {std::make_unique<ErasedState<G>>(rules_, state), ""};
    }

    std::vector<float> outcome_combination() const override {
        std::vector<float> combination;
        if constexpr (HasOutcomeTargets<G>) {
            for (int i = 0; i < G::kNumOutcomeTargets; ++i) combination.push_back(rules_.kOutcomeWeights[i]);
            combination.push_back(rules_.kOutcomeBias);
        }
        return combination;
    }

    int symmetric_action(int symmetry, int action) const override { return rules_.symmetric_action(symmetry, action); }
    int symmetric_cell(int symmetry, int cell) const override { return rules_.symmetric_cell(symmetry, cell); }

    std::unique_ptr<AnySearch> make_search(const SearchConfig& config, int num_slots, std::uint64_t seed, bool autoplay,
                                           std::size_t cache_entries) const override {
        return std::make_unique<ErasedSearch<G>>(rules_, config, num_slots, seed, autoplay, cache_entries);
    }

    std::unique_ptr<AnyUct> make_uct(int num_simulations, std::uint64_t seed, float c_uct) const override {
        if constexpr (kSampled<G>) return nullptr;
        else return std::make_unique<ErasedUct<G>>(rules_, num_simulations, seed, c_uct);
    }

    std::unique_ptr<AnyPimc> make_pimc(int num_determinizations, std::uint64_t seed) const override {
        return std::make_unique<ErasedPimc<G>>(rules_, num_determinizations, seed);
    }

    std::pair<std::int64_t, std::int64_t> random_playouts(std::int64_t count, std::uint64_t seed) const override {
        std::int64_t plies = 0;
        for (std::int64_t game = 0; game < count; ++game) {
            Rng rng(seed, static_cast<std::uint64_t>(game), 0, Purpose::kRandomGame);
            typename G::State state = rules_.initial();
            plies += play_randomly(rules_, state, rng);
        }
        return {count, plies};
    }

    std::int64_t random_redraws(std::int64_t count, std::uint64_t seed) const override {
        std::int64_t redraws = 0;
        if constexpr (HasHidden<G>) {
            constexpr int kTimes = 32;  // so that the games themselves cost little
            for (std::int64_t game = 0; game < count; ++game) {
                Rng rng(seed, static_cast<std::uint64_t>(game), 0, Purpose::kRandomGame);
                typename G::State state = rules_.initial();
                redraws += redraw_randomly(rules_, state, kTimes, rng);
            }
        }
        return redraws;
    }

  private:
    G rules_;
    Params params_;
};

}  // namespace azq::bind
