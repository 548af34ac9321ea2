/// The search of many games of one kind: a window of trees stepped in turn, the evaluations they share, the images they are asked in.
#pragma once

#include <atomic>
#include <limits>
#include <optional>

#include "azq/any/erased_state.hpp"
#include "azq/search/arena.hpp"
#include "azq/search/cache.hpp"
#include "azq/search/game_search.hpp"
#include "azq/search/symmetry.hpp"

namespace azq {

template <Game G>
class ErasedCache final : public AnyCache {
  public:
    explicit ErasedCache(std::size_t entries) : arena_(entries, sizeof(typename EvaluationCache<G>::Entry)), cache_(arena_.block(0), entries) {}

    std::size_t entries() const override { return cache_.entries(); }
    std::size_t memory_bytes() const override { return arena_.bytes(); }
    void clear() override { arena_.clear(); }
    EvaluationCache<G>& cache() { return cache_; }

  private:
    Arena arena_;
    EvaluationCache<G> cache_;
};

template <Game G>
class ManyGames final : public AnySearch {
  public:
    ManyGames(const G& rules, const SearchConfig& config, int num_slots, std::uint64_t seed, bool autoplay, const Sharing& sharing)
        : context_(rules, config, seed, autoplay),
          arena_(static_cast<std::size_t>(num_slots), block_lines(context_.node_capacity()) * kLine),
          larger_(kSampled<G> ? 0 : static_cast<std::size_t>(num_slots), larger_lines(context_.node_capacity()) * kLine),
          shared_(std::static_pointer_cast<ErasedCache<G>>(sharing.cache)) {
        if (sharing.merge_symmetries && G::kNumSymmetries > 1) symmetries_.emplace(rules);
        if (shared_ != nullptr || symmetries_.has_value()) names_.resize(static_cast<std::size_t>(num_slots) * most_leaves_);
        slots_.reserve(static_cast<std::size_t>(num_slots));
        const auto lines = static_cast<std::int32_t>(SearchOf<G>::usual_lines(context_.node_capacity()));
        for (std::size_t slot = 0; slot < static_cast<std::size_t>(num_slots); ++slot) {
            slots_.emplace_back(context_, Room{arena_.block(slot), lines, kSampled<G> ? nullptr : larger_.block(slot)});
        }
        moved_.resize(slots_.size(), 0);
        status_.resize(slots_.size(), SlotStatus::kEmpty);
    }

    /// Most bytes that a game and its tree take; more, perhaps, than there are addresses.
    static double slot_bytes(int node_capacity) {
        const std::size_t lines = block_lines(node_capacity) + (kSampled<G> ? 0 : larger_lines(node_capacity));
        return static_cast<double>(sizeof(GameSearch<G>)) + static_cast<double>(kLine) * static_cast<double>(lines);
    }

    int num_slots() const override { return static_cast<int>(slots_.size()); }
    std::size_t memory_bytes() const override {
        std::size_t bytes = slots_.size() * sizeof(GameSearch<G>);
        for (const GameSearch<G>& game : slots_) bytes += game.tree().moved() ? larger_.block_bytes() : arena_.block_bytes();
        return bytes;
    }
    SlotStatus status(int slot) const override { return status_[static_cast<std::size_t>(slot)]; }
    int pending(int slot) const override { return at(slot).pending(); }
    bool take_changed(int slot) override { return at(slot).take_changed(); }
    const GameRecord& record(int slot) const override { return at(slot).record(); }
    TreeTable tree(int slot) const override { return tabulate<G>(at(slot).tree()); }
    void start(int slot, GameRecord record) override {
        at(slot).start(std::move(record));
        settle(slot);
    }
    void start_at(int slot, std::uint64_t uid, const AnyState& state) override {
        at(slot).start_at(uid, static_cast<const ErasedState<G>&>(state).state());
        settle(slot);
    }
    void clear(int slot) override {
        at(slot).clear();
        settle(slot);
    }
    void play(int slot, int action) override {
        at(slot).play(action, scratch().data());
        settle(slot);
    }

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

    /// Steps a window of trees in turn: while one tree's next node is fetched from memory, the others work. A tree that gets its
    /// evaluations now is searched on at once, for what they touched is what the next simulation begins with.
    void collect(int first, int last, const Answers* answers, std::uint8_t* packed, std::size_t row_bytes,
                 std::int32_t* counts) override {
        std::vector<std::int32_t> remap = scratch();
        Turn window[kWindow];
        int open = 0;
        int next = first;
        std::uint64_t lookups = 0;
        std::uint64_t hits = 0;
        while (open < kWindow && next < last) window[open++] = admit(next++, last, answers);
        while (open > 0) {
            for (int i = 0; i < open;) {
                Turn& turn = window[i];
                lookups += turn.asking;
                if (turn.asking ? answer(turn, {packed, row_bytes}, hits) : step(turn, remap.data(), {packed, row_bytes})) {
                    ++i;
                    continue;
                }
                counts[turn.slot] = at(turn.slot).pending();
                settle(turn.slot);
                if (next < last) {
                    window[i++] = admit(next++, last, answers);
                } else {
                    window[i] = window[--open];
                }
            }
        }
        cache_lookups_.fetch_add(lookups, std::memory_order_relaxed);
        cache_hits_.fetch_add(hits, std::memory_order_relaxed);
    }

    const NamedLeaf* names() const override { return shared_ == nullptr ? nullptr : names_.data(); }
    void use_version(std::uint32_t version) override { version_ = version; }

    void remember(int first, int last, const Answers& answers) override {
        if (shared_ == nullptr) return;
        for (int slot = first; slot < last; ++slot) {
            if (slot + kAhead < last) shared_->cache().prefetch_put(names_[number(slot + kAhead, 0)].name);
            for (int which = 0; which < answers.batch.leaves(slot); ++which) {
                const std::size_t leaf = number(slot, which);
                if (answers.batch.owns(leaf)) shared_->cache().put(names_[leaf].name, logits(answers, leaf), values(answers, leaf), answers.version);
            }
        }
    }

    void apply(int first, int last, const Answers& answers) override {
        for (int slot = first; slot < last; ++slot) {
            fetch_ahead(slot, last);
            give_all(slot, answers);
        }
    }

    std::uint64_t run_uniform(int first, int last, const std::function<std::uint64_t(int)>& quota) override {
        std::vector<std::int32_t> remap = scratch();
        std::uint64_t done = 0;
        for (int slot = first; slot < last; ++slot) {
            if (status(slot) == SlotStatus::kEmpty) {
                GameRecord fresh;
                fresh.uid = static_cast<std::uint64_t>(slot);
                start(slot, std::move(fresh));
            }
            done += at(slot).run_uniform(quota(slot), slots_.size(), remap.data());
            settle(slot);
        }
        return done;
    }

    Totals totals() const override {
        Totals sum{};
        for (const GameSearch<G>& game : slots_) {
            sum.simulations += game.simulations();
            sum.exact += game.exact();
            sum.leaves += game.evaluations();
            sum.plies += game.plies();
        }
        sum.cache_lookups = cache_lookups_.load(std::memory_order_relaxed);
        sum.cache_hits = cache_hits_.load(std::memory_order_relaxed);
        return sum;
    }

  private:
    static constexpr int kWindow = 16;  ///< Trees stepped in turn: about as many cache misses as a core keeps in flight.
    static constexpr int kAhead = 4;    ///< Slots between the fetching of memory and its use.

    /// Odd in cache lines, so that the roots of many trees do not fall into the same cache sets.
    static std::size_t block_lines(int node_capacity) { return SearchOf<G>::usual_lines(node_capacity) | 1; }
    static std::size_t larger_lines(int node_capacity) { return SearchOf<G>::capacity_lines(node_capacity) | 1; }

    /// After a game moved on: notes its status where all slots' lie together, and gives the memory back that its tree moved out of.
    void settle(int slot) {
        status_[static_cast<std::size_t>(slot)] = at(slot).status();
        std::uint8_t& known = moved_[static_cast<std::size_t>(slot)];
        if (known != 0 || !at(slot).tree().moved()) return;
        known = 1;
        arena_.release(static_cast<std::size_t>(slot));
    }

    /// Where leaves are written to.
    struct Rows {
        std::uint8_t* packed;
        std::size_t bytes;
        std::uint8_t* at(std::size_t leaf) const { return packed + leaf * bytes; }
    };

    /// A tree under way, and whether its leaf's place in the cache is being fetched.
    struct Turn {
        int slot;
        bool asking;
    };

    Turn admit(int slot, int last, const Answers* answers) {
        if (answers != nullptr) {
            fetch_ahead(slot, last);
            give_all(slot, *answers);
        } else if (slot + kAhead < last) {
            prefetch_slot(slot + kAhead);
        }
        at(slot).prefetch_root();
        return {slot, false};
    }

    std::size_t most_leaves() const { return static_cast<std::size_t>(azq::most_leaves(context_.config, G::kNumActions)); }
    std::size_t number(int slot, int which) const { return static_cast<std::size_t>(slot) * most_leaves_ + static_cast<std::size_t>(which); }
    std::size_t newest(int slot) const { return number(slot, at(slot).pending() - 1); }

    /// One step of a tree; false where it waits. With several leaves in flight evaluations must keep their order, so then the
    /// cache is not asked.
    bool step(Turn& turn, std::int32_t* remap, Rows rows) {
        bool met = false;
        const bool moving = at(turn.slot).advance(remap, [&](int which, const typename G::State& state, const std::uint8_t* view) {
            const std::size_t leaf = number(turn.slot, which);
            std::uint8_t* row = rows.at(leaf);
            if (view != nullptr) std::memcpy(row, view, kPackedSize<G>);
            else context_.rules.observe(state, context_.rules.mover(state), row);
            if (!names_.empty()) name(names_[leaf], row);
            turn.asking = shared_ != nullptr && context_.config.leaves_per_step == 1;
            met = true;
        });
        if (turn.asking) {
            shared_->cache().prefetch(names_[newest(turn.slot)].name);
            return true;
        }
        if (met) finish_last(turn.slot, rows);
        return moving;
    }

    /// Asks the cache for the newest leaf of a tree; false where the tree then waits for the evaluator.
    bool answer(Turn& turn, Rows rows, std::uint64_t& hits) {
        turn.asking = false;
        typename EvaluationCache<G>::Evaluation known;
        if (!shared_->cache().find(names_[newest(turn.slot)].name, version_, known)) {
            finish_last(turn.slot, rows);
            return at(turn.slot).early();
        }
        give(turn.slot, at(turn.slot).pending() - 1, known.logits, known.values, version_, true);
        ++hits;
        return true;
    }

    void name(NamedLeaf& leaf, const std::uint8_t* packed) const {
        leaf.symmetry = 0;
        if (symmetries_.has_value()) {
            leaf.symmetry = symmetries_->name(packed, leaf.name);
        } else {
            leaf.name = name_of(packed, kPackedSize<G>);
        }
    }

    /// Brings the observation of a tree's newest leaf to the form that is asked for, and says what is legal there.
    void finish_last(int slot, Rows rows) const {
        const std::size_t leaf = newest(slot);
        const int symmetry = symmetries_.has_value() ? names_[leaf].symmetry : 0;
        if (symmetry != 0) symmetries_->turn(symmetry, rows.at(leaf));
        if (rows.bytes == kPackedSize<G>) return;
        std::uint8_t* legal = rows.at(leaf) + kPackedSize<G>;
        std::memset(legal, 0, rows.bytes - kPackedSize<G>);
        const Edges edges = at(slot).newest();
        for (int i = 0; i < edges.count; ++i) {
            const int action = symmetry == 0 ? edges.action[i] : symmetries_->action(symmetry, edges.action[i]);
            legal[action / 8] = static_cast<std::uint8_t>(legal[action / 8] | 1u << action % 8);
        }
    }

    static const Half* logits(const Answers& answers, std::size_t leaf) {
        return answers.logits + static_cast<std::size_t>(answers.batch.row(leaf)) * G::kNumActions;
    }
    static const Half* values(const Answers& answers, std::size_t leaf) {
        return answers.values + static_cast<std::size_t>(answers.batch.row(leaf)) * kValueSize<G>;
    }

    void give_all(int slot, const Answers& answers) {
        for (int which = 0, leaves = at(slot).pending(); which < leaves; ++which) {
            const std::size_t leaf = number(slot, which);
            give(slot, which, logits(answers, leaf), values(answers, leaf), answers.version);
        }
    }

    /// Gives a leaf its evaluation, which is that of its form; `at_once`: the newest one's, before the others get theirs.
    void give(int slot, int which, const Half* logits, const Half* values, std::uint32_t version, bool at_once = false) {
        Half turned[G::kNumActions];
        if (symmetries_.has_value()) {
            const int symmetry = names_[number(slot, which)].symmetry;
            if (symmetry != 0) {
                symmetries_->turn_back(symmetry, logits, turned);
                logits = turned;
            }
        }
        if (at_once) at(slot).apply_newest(logits, values, version);
        else at(slot).apply(which, logits, values, version);
    }

    /// What `apply` will touch, a step of the way for each of three later slots: a slot tells where its path is, and that its nodes.
    void fetch_ahead(int slot, int last) const {
        if (slot + 3 * kAhead < last) prefetch_slot(slot + 3 * kAhead);
        if (slot + 2 * kAhead < last) at(slot + 2 * kAhead).prefetch_path();
        if (slot + kAhead < last) at(slot + kAhead).prefetch_pending();
    }

    void prefetch_slot(int slot) const { prefetch_lines(&at(slot), sizeof(GameSearch<G>) / kLine); }

    std::vector<std::int32_t> scratch() const {
        if constexpr (kSampled<G>) return {};  // nothing is kept from ply to ply
        else return std::vector<std::int32_t>(Tree<G>::capacity_lines(context_.node_capacity()));
    }
    GameSearch<G>& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
    const GameSearch<G>& at(int slot) const { return slots_[static_cast<std::size_t>(slot)]; }

    SearchContext<G> context_;
    std::size_t most_leaves_ = most_leaves();  ///< That a slot may have out.
    Arena arena_;
    Arena larger_;                    ///< For trees that outgrow their block; untouched until then.
    std::vector<SlotStatus> status_;   ///< By slot. Asked of all slots in each turn, when the games lie in other cores' caches.
    std::vector<std::uint8_t> moved_;  ///< By slot: the tree left its first block.
    std::shared_ptr<ErasedCache<G>> shared_;
    std::optional<Symmetries<G>> symmetries_;
    std::vector<NamedLeaf> names_;  ///< Of the leaves that are out, by number; empty where nobody asks.
    std::uint32_t version_ = 0;     ///< Weight version of the last evaluations.
    std::atomic<std::uint64_t> cache_lookups_{0};
    std::atomic<std::uint64_t> cache_hits_{0};
    std::vector<GameSearch<G>> slots_;
};

}  // namespace azq
