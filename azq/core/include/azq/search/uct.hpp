/// Pure UCT: UCB1 over random playouts, the classical opponent (Kocsis and Szepesvari, "Bandit based Monte-Carlo planning",
/// ECML 2006). A simulation adds one position where a player is to move and plays uniformly random moves from it to the end. Chance
/// is drawn as the game says, in the tree, where each outcome that was drawn has a node of its own, and beyond it. UCB1 expects results
/// from -1 to 1; the scores of a game for one lie in a small part of that, so there it is the range seen in this search that counts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "azq/chance.hpp"
#include "azq/search/value.hpp"

namespace azq {

/// Plays uniformly random moves, and lets chance act, until the game ends; returns the plies played.
template <Game G>
int play_randomly(const G& rules, typename G::State& state, Rng& rng) {
    std::uint16_t actions[G::kMaxLegal];
    int plies = 0;
    for (;;) {
        settle_chance(rules, state, rng);
        if (rules.actor(state) == kTerminalPlayer) return plies;
        const int count = rules.legal(state, actions);
        rules.apply(state, actions[rng.below(count)]);
        ++plies;
    }
}

template <Game G>
    requires(!HasHidden<G> && G::kNumPlayers <= 2)
class Uct {
  public:
    using State = typename G::State;

    Uct(const G& rules, int num_simulations, std::uint64_t seed, float c_uct)
        : rules_(rules), num_simulations_(num_simulations), seed_(seed), c_uct_(c_uct) {}

    /// The most visited action of a position that is not terminal; ties go to the lowest action.
    int best_action(const State& state) {
        nodes_.clear();
        low_ = high_ = 0.0f;
        create(state, kNone);
        Rng rng(seed_, searches_++, 0, Purpose::kUct);
        for (int simulation = 0; simulation < num_simulations_; ++simulation) simulate(rng);
        const Node& root = nodes_[0];
        int best = 0;
        for (int i = 1; i < root.count; ++i) best = visits(root, i) > visits(root, best) ? i : best;
        return root.actions[best];
    }

    /// Of the last search, kNumActions entries; zeros before the first.
    void scores(std::int32_t* counts) const {
        for (int action = 0; action < G::kNumActions; ++action) counts[action] = 0;
        if (nodes_.empty()) return;
        for (int i = 0; i < nodes_[0].count; ++i) counts[nodes_[0].actions[i]] = visits(nodes_[0], i);
    }

  private:
    static constexpr std::int32_t kNone = -1;

    struct Node {
        State state;
        std::int32_t parent;
        int actor;
        int outcome = 0;             ///< Of chance, that led here.
        std::int32_t next = kNone;   ///< Another outcome at the same parent.
        std::int32_t first = kNone;  ///< Where chance acts: the outcome drawn last that was new.
        int count = 0;    ///< Legal actions.
        int created = 0;  ///< Of these, the first `created` have a child.
        std::int32_t visits = 0;
        float value_sum = 0.0f;  ///< Player 0's.
        std::uint16_t actions[G::kMaxLegal];
        std::int32_t children[G::kMaxLegal];
    };

    std::int32_t visits(const Node& node, int edge) const {
        return edge < node.created ? nodes_[static_cast<std::size_t>(node.children[edge])].visits : 0;
    }

    std::int32_t create(const State& state, std::int32_t parent) {
        Node node;
        node.state = state;
        node.parent = parent;
        node.actor = rules_.actor(state);
        if (node.actor >= 0) node.count = rules_.legal(state, node.actions);
        nodes_.push_back(node);
        return static_cast<std::int32_t>(nodes_.size()) - 1;
    }

    void simulate(Rng& rng) {
        std::int32_t index = descend(rng);
        State end = node(index).state;
        play_randomly(rules_, end, rng);
        const float value = rules_.returns(end, 0);
        low_ = node(0).visits == 0 ? value : std::min(low_, value);
        high_ = node(0).visits == 0 ? value : std::max(high_, value);
        for (; index != kNone; index = node(index).parent) {
            node(index).visits += 1;
            node(index).value_sum += value;
        }
    }

    /// Down to one new position where chance does not act, or to the end.
    std::int32_t descend(Rng& rng) {
        std::int32_t index = 0;
        for (bool fresh = false;;) {
            if constexpr (HasChance<G>) {
                if (node(index).actor == kChancePlayer) {
                    index = draw(index, rng);
                    continue;
                }
            }
            if (fresh || node(index).count == 0) return index;
            fresh = node(index).created < node(index).count;
            index = fresh ? add_child(index, rng) : select(node(index));
        }
    }

    /// The position after an outcome drawn by chance.
    std::int32_t draw(std::int32_t parent, Rng& rng)
        requires HasChance<G>
    {
        const int outcome = pick_outcome(rules_, node(parent).state, rng.uniform());
        for (std::int32_t child = node(parent).first; child != kNone; child = node(child).next) {
            if (node(child).outcome == outcome) return child;
        }
        State state = node(parent).state;
        rules_.apply(state, outcome);
        const std::int32_t child = create(state, parent);
        node(child).outcome = outcome;
        node(child).next = node(parent).first;
        node(parent).first = child;
        return child;
    }

    std::int32_t select(const Node& parent) const {
        const float log_visits = log32(static_cast<float>(parent.visits));
        const float sign = sign_of(parent.actor);
        const float c_uct = G::kNumPlayers == 1 ? c_uct_ * (high_ - low_) / 2.0f : c_uct_;
        std::int32_t best = kNone;
        float best_score = 0.0f;
        for (int i = 0; i < parent.count; ++i) {
            const Node& child = nodes_[static_cast<std::size_t>(parent.children[i])];
            const float visits = static_cast<float>(child.visits);
            const float score = sign * child.value_sum / visits + c_uct * std::sqrt(log_visits / visits);
            if (best == kNone || score > best_score) {
                best = parent.children[i];
                best_score = score;
            }
        }
        return best;
    }

    /// Tries one of the actions not tried yet, chosen uniformly: it is swapped to the front of the untried ones.
    std::int32_t add_child(std::int32_t parent, Rng& rng) {
        State state = node(parent).state;
        const int first = node(parent).created;
        const int chosen = first + rng.below(node(parent).count - first);
        const std::uint16_t action = node(parent).actions[chosen];
        node(parent).actions[chosen] = node(parent).actions[first];
        node(parent).actions[first] = action;
        rules_.apply(state, action);
        const std::int32_t child = create(state, parent);
        node(parent).children[first] = child;
        node(parent).created = first + 1;
        return child;
    }

    Node& node(std::int32_t index) { return nodes_[static_cast<std::size_t>(index)]; }

    G rules_;
    int num_simulations_;
    std::uint64_t seed_;
    float c_uct_;
    std::uint64_t searches_ = 0;
    float low_ = 0.0f, high_ = 0.0f;  ///< Results of this search, player 0's.
    std::vector<Node> nodes_;
};

}  // namespace azq
