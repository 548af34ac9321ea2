/// One game: a search after another, and the plies and targets that come of them.
#pragma once

#include <type_traits>
#include <utility>

#include "azq/search/infoset_search.hpp"
#include "azq/search/game_record.hpp"
#include "azq/search/tree_search.hpp"

namespace azq {

/// The search that a game's kind asks for.
template <Game G>
using SearchOf = std::conditional_t<kSampled<G>, InfosetSearch<G>, TreeSearch<G>>;

template <Game G>
class GameSearch {
  public:
    using State = typename G::State;

    GameSearch(const SearchContext<G>& context, const Room& room) : context_(&context), search_(context, room) {}

    SlotStatus status() const { return status_; }
    const GameRecord& record() const { return record_; }
    const State& state() const { return state_; }
    const auto& tree() const { return search_.tree(); }
    int pending() const { return search_.pending(); }
    const State& pending_state(int which) const { return search_.pending_state(which); }
    Edges newest() const { return search_.newest(); }
    std::uint64_t simulations() const { return simulations_ + static_cast<std::uint64_t>(search_.simulations()); }
    std::uint64_t evaluations() const { return evaluations_; }
    std::uint64_t exact() const { return search_.exact(); }
    std::uint64_t plies() const { return plies_; }

    /// Whether the record grew since this was last asked.
    bool take_changed() { return std::exchange(changed_, false); }

    void clear() {
        status_ = SlotStatus::kEmpty;
        changed_ = false;
    }

    /// Takes a game over: replays the record's actions, which the caller found legal, and goes on from there.
    void start(GameRecord record) {
        adopt(std::move(record));
        state_ = context_->rules.initial();
        for (const std::uint16_t action : record_.actions) {
            decisions_ += context_->rules.actor(state_) != kChancePlayer;
            context_->rules.apply(state_, action);
        }
        begin_ply(kNoChild, nullptr);
    }

    /// Goes on from a position that nobody knows the history of.
    void start_at(std::uint64_t uid, const State& state) {
        GameRecord record;
        record.uid = uid;
        adopt(std::move(record));
        state_ = state;
        begin_ply(kNoChild, nullptr);
    }

    /// One small step towards the next leaves: calls emit(which, state, view) for a new one, plays spent plies on the way. False:
    /// nothing more can be done before `apply`, `play` or `start`. `remap`: scratch of capacity_lines entries.
    template <class Emit>
    bool advance(std::int32_t* remap, Emit&& emit) {
        if (status_ != SlotStatus::kBusy) return false;
        const Progress progress = search_.advance([&](const State& state, const std::uint8_t* view) {
            ++evaluations_;
            emit(search_.pending(), state, view);
        });
        if (progress != Progress::kSpent) return progress == Progress::kMoving;
        if (!context_->autoplay) {
            status_ = SlotStatus::kIdle;
            return false;
        }
        const Decision<G> decision = decide();
        play_with_targets(decision, decision.action, remap);
        return status_ == SlotStatus::kBusy;
    }

    /// Gives pending leaf number `which` its evaluation: logits of all actions and kValueSize values, for the leaf's player to
    /// move or, one a seat, from him on.
    void apply(int which, const Half* logits, const Half* values, std::uint32_t weight_version) {
        version_ = weight_version;
        search_.apply(which, logits, values);
    }

    /// The same for the leaf that was handed out last, while earlier ones wait.
    void apply_newest(const Half* logits, const Half* values, std::uint32_t weight_version) {
        version_ = weight_version;
        if constexpr (kSampled<G>) search_.apply(0, logits, values);
        else search_.apply_newest(logits, values);
    }

    /// Whether more leaves of this step are asked for, whatever becomes of the newest one.
    bool early() const {
        if constexpr (kSampled<G>) return false;
        else return search_.early();
    }

    void prefetch_root() const { search_.prefetch_root(); }
    void prefetch_path() const { search_.prefetch_path(); }
    void prefetch_pending() const { search_.prefetch_pending(); }

    /// Searches with prior logits 0 and value 0 until `quota` simulations are done; a finished game starts anew under uid + stride.
    /// Returns the simulations done, which leaves_per_step may carry past the quota.
    std::uint64_t run_uniform(std::uint64_t quota, std::uint64_t stride, std::int32_t* remap) {
        static constexpr Half kZeros[G::kNumActions + kValueSize<G>] = {};
        const std::uint64_t begin = simulations();
        while (simulations() < begin + quota) {
            if (status_ != SlotStatus::kBusy) {
                GameRecord next;
                next.uid = record_.uid + stride;
                start(std::move(next));
            }
            while (advance(remap, [](int, const State&, const std::uint8_t*) {})) {
            }
            for (int which = 0, leaves = pending(); which < leaves; ++which) apply(which, kZeros, kZeros, 0);
        }
        return simulations() - begin;
    }

    /// The spent search's answer; only while kIdle.
    Decision<G> decide() const { return search_.decide(); }

    /// Plays a legal action, with the search's targets where its budget is spent, and searches on; or lets an outcome happen.
    void play(int action, std::int32_t* remap) {
        if (status_ == SlotStatus::kIdle) {
            play_with_targets(decide(), action, remap);
        } else {
            append_without_targets(action);
            advance_game(action, remap);
        }
    }

  private:
    PlyKey key() const { return PlyKey{context_->seed, record_.uid, static_cast<std::uint32_t>(record_.plies()), decisions_}; }

    void adopt(GameRecord record) {
        clear();
        simulations_ += static_cast<std::uint64_t>(search_.simulations());
        record_ = std::move(record);
        version_ = record_.weight_versions.empty() ? 0 : record_.weight_versions.back();
        decisions_ = 0;
    }

    void play_with_targets(const Decision<G>& decision, int action, std::int32_t* remap) {
        Half policy[G::kNumActions];
        for (int i = 0; i < G::kNumActions; ++i) policy[i] = to_half(decision.policy[i]);
        float values[kValueSize<G>];
        for (int seat = 1; seat < kValueSize<G>; ++seat) values[seat] = decision.others[seat];
        values[0] = decision.root_value;
        const int spent = search_.simulations();
        record_.append(static_cast<std::uint16_t>(action), policy, G::kNumActions, values, kValueSize<G>,
                       static_cast<std::uint16_t>(spent < 1 ? 1 : (spent > 65535 ? 65535 : spent)), version_);
        advance_game(action, remap);
    }

    void append_without_targets(int action) {
        const Half zeros[G::kNumActions] = {};
        const float values[kValueSize<G>] = {};
        record_.append(static_cast<std::uint16_t>(action), zeros, G::kNumActions, values, kValueSize<G>, 0, version_);
    }

    void advance_game(int action, std::int32_t* remap) {
        std::int32_t child = kNoChild;
        if constexpr (!kSampled<G>) child = context_->config.reuse_subtree ? search_.child_of(action) : kNoChild;
        move(action);
        simulations_ += static_cast<std::uint64_t>(search_.simulations());
        begin_ply(child, remap);
    }

    void move(int action) {
        const bool decided = context_->rules.actor(state_) != kChancePlayer;
        context_->rules.apply(state_, action);
        changed_ = true;
        decisions_ += decided;
        plies_ += decided;
    }

    /// Sets up the search of the position in state_, from a child of the old root where one is kept.
    void begin_ply(std::int32_t child, std::int32_t* remap) {
        if (context_->autoplay) {
            settle_chance();
            play_random_opening();
        }
        const int actor = context_->rules.actor(state_);
        status_ = actor == kTerminalPlayer ? SlotStatus::kFinished : (actor == kChancePlayer ? SlotStatus::kChance : SlotStatus::kBusy);
        if (status_ == SlotStatus::kFinished) forget_truncated();
        if constexpr (!kSampled<G>) {
            if (child != kNoChild && status_ == SlotStatus::kBusy) return search_.begin_at(child, key(), remap);
        }
        if (!kSampled<G> || status_ == SlotStatus::kBusy) search_.begin(state_, key());
    }

    /// Chance of the game itself; each outcome is a ply of the record.
    void settle_chance() {
        if constexpr (HasChance<G>) {
            while (context_->rules.actor(state_) == kChancePlayer) {
                const int outcome = pick_outcome(context_->rules, state_, key().rng(Purpose::kChance).uniform());
                append_without_targets(outcome);
                move(outcome);
            }
        }
    }

    /// A game that a safety cap ended teaches nothing.
    void forget_truncated() {
        if constexpr (HasTruncation<G>) {
            if (!context_->rules.truncated(state_)) return;
            for (std::uint16_t& spent : record_.simulations) spent = 0;
        }
    }

    /// How many random plies this game begins with: uniform in 0..random_opening_plies, drawn for the game and so the same for
    /// whoever takes it over.
    int opening_plies() const {
        const int most = context_->config.random_opening_plies;
        return most == 0 ? 0 : Rng(context_->seed, record_.uid, 0, Purpose::kOpeningLength).below(most + 1);
    }

    /// Plays the random plies that self-play begins with; none in a game that was given plies, and none once a search has played.
    void play_random_opening() {
        if (decisions_ != 0) return;
        const int opening = opening_plies();
        while (decisions_ < opening && context_->rules.actor(state_) != kTerminalPlayer) {
            std::uint16_t actions[G::kMaxLegal];
            const int count = context_->rules.legal(state_, actions);
            const std::uint16_t action = actions[key().rng(Purpose::kOpening).below(count)];
            append_without_targets(action);
            move(action);
            settle_chance();
        }
    }

    const SearchContext<G>* context_;
    SearchOf<G> search_;
    State state_{};
    GameRecord record_;
    std::uint32_t version_ = 0;       ///< Weight version of the last evaluation.
    std::uint64_t simulations_ = 0;   ///< Of the plies before this one.
    std::uint64_t evaluations_ = 0;
    std::uint64_t plies_ = 0;
    std::int32_t decisions_ = 0;      ///< Of the game: plies that players chose.
    SlotStatus status_ = SlotStatus::kEmpty;
    bool changed_ = false;
};

}  // namespace azq
