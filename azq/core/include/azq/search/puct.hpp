/// PUCT: selection and targets of AlphaZero (Silver et al., Science 362, 2018, supplement, "Search").
#pragma once

#include <algorithm>
#include <cmath>

#include "azq/search/decision.hpp"

namespace azq {

/// argmax over actions a of  Q(a) + c_puct * P(a) * sqrt(N) / (1 + n(a)).
///
/// N counts the visits of the node, its own evaluation included, so the first choice already follows the prior.
/// Q(a) of an unvisited action is first-play urgency: the node's mean value less fpu_reduction.
/// In-flight leaves count as visits in N and n but not in Q (Liu et al., "Watch the Unobserved", ICLR 2020), which
/// matters only with leaves_per_step > 1. Ties go to the lowest action.
///
/// Solved children are left out: there is nothing more to learn below them, and what they prove bounds every value backed up
/// through the node. At the root, where visits become the policy target, a solved child that is not lost still earns its
/// visits: such a simulation ends at once with the exact value and asks for no evaluation.
template <class NodeT>
int select_puct(const NodeT& node, const Edges& edges, const SearchConfig& config, bool at_root) {
    const float sign = node.sign();
    const float exploration = config.c_puct * std::sqrt(static_cast<float>(node.visits + node.in_flight));
    const float urgency = sign * node.mean - config.fpu_reduction;
    FirstLargest best;
    for (int i = 0; i < edges.stride; i += kLanes) {
        const Ints visits = load<Ints>(edges.visits + i);
        const Floats q = sign * load<Floats>(edges.q + i);
        const Floats value = visits > 0 ? q : in_all(urgency);
        const Floats score = value + exploration * load<Floats>(edges.prior + i) / to_floats(1 + visits + load_shorts(edges.in_flight + i));
        Ints open = (lanes_from(i) < edges.count) & (load<Ints>(edges.child + i) < kSolvedChild);
        if (at_root) open |= (lanes_from(i) < edges.count) & (q > -1.0f);  // solved, but not lost
        best.take(i, open ? score : in_all(kPadLogit));
    }
    return best.at();
}

/// Weights of the visit distribution: visits, those of children proven lost left out, since they were spent before the proof
/// and would be both played and learned. With no visit left over, the prior of the actions not proven lost.
template <class TreeT>
void visit_weights(const TreeT& tree, float* weights) {
    const auto& root = tree.root();
    const Edges edges = tree.edges(TreeT::kRoot);
    const float sign = root.sign();
    float sum = 0.0f;
    for (int i = 0; i < edges.count; ++i) {
        weights[i] = edges.lost(i, sign) ? 0.0f : static_cast<float>(edges.visits[i]);
        sum += weights[i];
    }
    for (int i = 0; i < edges.count && sum == 0.0f; ++i) weights[i] = edges.lost(i, sign) ? 0.0f : edges.prior[i];
}

/// The algorithm, as PlySearch asks for it.
struct Puct {
    static int most_candidates(const SearchConfig&, int) { return 0; }

    /// The root, one node for each simulation through it, and children that were asked for early and never visited.
    static int node_capacity(const SearchConfig& config, int legal) {
        return config.num_simulations + 1 + (config.batch_root ? std::min(legal, config.num_simulations) : 0);
    }

    /// Whether the ply may visit an action of the root: nobody knows before it does, so any.
    template <Game G>
    static bool will_visit(const RootPlan<G>&, int) {
        return true;
    }

    /// Simulations of the budget that are done: all through the root, kept ones included.
    static std::int32_t done(const auto& root, std::int32_t) { return root.visits - 1; }

    /// Mixes Dirichlet noise into the root's priors (Science 2018, "Self-play"): P = (1 - fraction) * P + fraction * noise.
    template <Game G, class TreeT>
    static void prepare(TreeT& tree, const SearchConfig& config, const PlyKey& key, RootPlan<G>&) {
        if (config.dirichlet_fraction <= 0.0f) return;
        Rng rng = key.rng(Purpose::kDirichlet);
        const Edges edges = tree.edges(TreeT::kRoot);
        float noise[G::kMaxLegal];
        rng.dirichlet(config.dirichlet_alpha, edges.count, noise);
        for (int i = 0; i < edges.count; ++i) {
            edges.prior[i] = (1.0f - config.dirichlet_fraction) * edges.prior[i] + config.dirichlet_fraction * noise[i];
        }
    }

    template <Game G, class TreeT>
    static int select(const TreeT& tree, std::int32_t index, const SearchConfig& config, const HalvingSchedule&, const RootPlan<G>&,
                      std::int32_t) {
        return select_puct(tree.node(index), tree.edges(index), config, index == TreeT::kRoot);
    }

    /// Policy target: visit distribution. Plays a draw from visits^(1 / temperature) in the temperature plies, then the most visited.
    template <Game G, class TreeT>
    static Decision<G> decide(const TreeT& tree, const SearchConfig& config, const PlyKey& key, const RootPlan<G>&) {
        const bool draw = key.decisions < config.temperature_plies && config.temperature > 0.0f;
        Rng rng = key.rng(Purpose::kTemperature);
        const auto& root = tree.root();
        if (root.solved()) return decide_proven<G>(tree, nullptr, draw, rng);
        const Edges edges = tree.edges(TreeT::kRoot);
        Decision<G> decision;
        float weights[G::kMaxLegal];
        visit_weights(tree, weights);
        set_policy(decision, edges, weights);
        const int most = best_edge(weights, edges.count);
        decision.best_action = edges.action[most];
        if (draw && config.temperature != 1.0f) {
            const float largest = weights[most];
            for (int i = 0; i < edges.count; ++i) {
                weights[i] = weights[i] > 0.0f ? exp32(log32(weights[i] / largest) / config.temperature) : 0.0f;
            }
        }
        decision.action = edges.action[draw ? draw_edge(weights, edges.count, rng) : most];
        decision.root_value = root.sign() * clamp(root.mean, root.lower, root.upper);
        decision.proven = false;
        return decision;
    }
};

}  // namespace azq
