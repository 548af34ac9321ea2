/// A game's positions and its classical opponents behind the interfaces of any_game.hpp.
#pragma once

#include "azq/any/any_game.hpp"
#include "azq/search/pimc.hpp"
#include "azq/search/uct.hpp"

namespace azq {

template <Game G>
class ErasedState final : public AnyState {
  public:
    ErasedState(const G& rules, const typename G::State& state) : rules_(rules), state_(state) {}

    const typename G::State& state() const { return state_; }
    std::unique_ptr<AnyState> clone() const override { return std::make_unique<ErasedState>(*this); }
    int actor() const override { return rules_.actor(state_); }
    int mover() const override { return rules_.mover(state_); }
    bool is_legal(int action) const override { return azq::is_legal(rules_, state_, action); }
    void apply(int action) override { rules_.apply(state_, action); }
    float returns(int player) const override { return actor() == kTerminalPlayer ? rules_.returns(state_, player) : 0.0f; }
    void observe(int player, std::uint8_t* packed) const override { rules_.observe(state_, player, packed); }
    std::string action_text(int action) const override { return rules_.action_text(state_, action); }
    std::string text() const override { return rules_.text(state_); }

    std::string notation() const override { return rules_.notation(state_); }

    std::vector<int> legal() const override {
        std::vector<int> numbers;
        for (const Outcome& outcome : chance()) numbers.push_back(outcome.outcome);
        if (actor() < 0) return numbers;
        std::uint16_t actions[G::kMaxLegal];
        const int count = rules_.legal(state_, actions);
        return {actions, actions + count};
    }

    std::vector<Outcome> chance() const override {
        if constexpr (HasChance<G>) {
            if (actor() != kChancePlayer) return {};
            Outcome outcomes[G::kMaxOutcomes];
            const int count = rules_.chance(state_, outcomes);
            return {outcomes, outcomes + count};
        }
        return {};
    }

    std::string information_state(int player) const override {
        if constexpr (HasHidden<G>) return rules_.information_state(state_, player);
        return notation();
    }

    std::unique_ptr<AnyState> resample(int player, std::uint64_t seed) const override {
        auto copy = std::make_unique<ErasedState>(*this);
        if constexpr (HasHidden<G>) {
            Rng rng(seed, 0, 0, Purpose::kResample);
            rules_.resample(copy->state_, player, rng);
        }
        return copy;
    }

    float margin(int player) const override {
        if constexpr (HasMargin<G>) return actor() == kTerminalPlayer ? rules_.margin(state_, player) : 0.0f;
        return 0.0f;
    }

    bool truncated() const override {
        if constexpr (HasTruncation<G>) return actor() == kTerminalPlayer && rules_.truncated(state_);
        return false;
    }

    void outcome_targets(int player, float* targets) const override {
        if constexpr (HasOutcomeTargets<G>) rules_.outcome_targets(state_, player, targets);
    }

    void hidden(int player, std::uint8_t* targets) const override {
        if constexpr (HasHiddenTargets<G>) rules_.hidden(state_, player, targets);
    }

  private:
    G rules_;
    typename G::State state_;
};

template <Game G, class Search, class Score>
class ErasedClassical final : public AnyClassical<Score> {
  public:
    template <class... Settings>
    explicit ErasedClassical(const G& rules, Settings... settings) : search_(rules, settings...) {}

    int best_action(const AnyState& state) override { return search_.best_action(static_cast<const ErasedState<G>&>(state).state()); }
    std::vector<Score> scores() const override {
        std::vector<Score> found(G::kNumActions);
        search_.scores(found.data());
        return found;
    }

  private:
    Search search_;
};

}  // namespace azq
