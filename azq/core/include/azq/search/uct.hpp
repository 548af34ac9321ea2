/// Pure UCT: UCB1 over random playouts, the classical opponent (Kocsis and Szepesvari, "Bandit based Monte-Carlo planning",
/// ECML 2006). A simulation adds one node and plays uniformly random moves from it to the end.
#pragma once

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
    requires(!kSampled<G>)
class Uct {
  public:
    using State = typename G::State;

    Uct(const G& rules, int num_simulations, std::uint64_t seed, float c_uct)
        : rules_(rules), num_simulations_(num_simulations), seed_(seed), c_uct_(c_uct) {}

    /// The most visited action of a position that is not terminal; ties go to the lowest action.
    int best_action(const State& state) {
        nodes_.clear();
        create(state, -1);
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
    struct Node {
        State state;
        std::int32_t parent;
        int actor;
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
        if (node.actor != kTerminalPlayer) node.count = rules_.legal(state, node.actions);
        nodes_.push_back(node);
        return static_cast<std::int32_t>(nodes_.size()) - 1;
    }

    void simulate(Rng& rng) {
        std::int32_t index = 0;
        while (node(index).count > 0 && node(index).created == node(index).count) index = select(node(index));
        if (node(index).count > 0) index = add_child(index, rng);
        State end = node(index).state;
        play_randomly(rules_, end, rng);
        const float value = rules_.returns(end, 0);
        for (; index >= 0; index = node(index).parent) {
            node(index).visits += 1;
            node(index).value_sum += value;
        }
    }

    std::int32_t select(const Node& parent) const {
        const float log_visits = log32(static_cast<float>(parent.visits));
        const float sign = sign_of(parent.actor);
        std::int32_t best = -1;
        float best_score = 0.0f;
        for (int i = 0; i < parent.count; ++i) {
            const Node& child = nodes_[static_cast<std::size_t>(parent.children[i])];
            const float visits = static_cast<float>(child.visits);
            const float score = sign * child.value_sum / visits + c_uct_ * std::sqrt(log_visits / visits);
            if (best < 0 || score > best_score) {
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
    std::vector<Node> nodes_;
};

}  // namespace azq
