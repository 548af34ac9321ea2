/// Gumbel AlphaZero: Danihelka et al., "Policy improvement by planning with Gumbel", ICLR 2022.
///
/// Names and the schedule of considered visits follow mctx (gumbel_muzero_policy). Two points differ: q is mapped from
/// [-1, 1] to [0, 1] by a constant map instead of the range seen so far, since a zero-sum game's range is known; and the
/// candidates are fixed when the ply begins, so that statistics kept from the ply before do not change who is a candidate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "azq/search/decision.hpp"

namespace azq {

/// Sequential halving (Karnin et al., ICML 2013) as a sequence: at the t-th simulation of a ply with m candidates, those
/// candidates compete that have exactly `considered(m, t)` visits in this ply (mctx, seq_halving.py).
class HalvingSchedule {
  public:
    HalvingSchedule(int max_candidates, int num_simulations) : num_simulations_(num_simulations) {
        table_.reserve(static_cast<std::size_t>(max_candidates + 1) * static_cast<std::size_t>(num_simulations));
        for (int m = 0; m <= max_candidates; ++m) append(m);
    }

    std::int32_t considered(int candidates, int simulation) const {
        const std::int64_t row = std::int64_t{candidates} * num_simulations_;
        return table_[static_cast<std::size_t>(row + simulation)];
    }

  private:
    void append(int candidates) {
        const std::size_t end = table_.size() + static_cast<std::size_t>(num_simulations_);
        if (candidates <= 1) {
            for (int t = 0; t < num_simulations_; ++t) table_.push_back(t);
            return;
        }
        int rounds = 0;
        while ((1 << rounds) < candidates) ++rounds;
        std::vector<std::int32_t> visits(static_cast<std::size_t>(candidates), 0);
        int left = candidates;
        while (table_.size() < end) {
            const int extra = num_simulations_ / (rounds * left);
            for (int repeat = 0; repeat < (extra > 1 ? extra : 1); ++repeat) {
                for (int i = 0; i < left && table_.size() < end; ++i) table_.push_back(visits[static_cast<std::size_t>(i)]++);
            }
            left = left / 2 > 2 ? left / 2 : 2;
        }
    }

    int num_simulations_;
    std::vector<std::int32_t> table_;
};

/// What a ply fixes at its root before the first simulation.
template <Game G>
struct RootPlan {
    static constexpr int kMaxStride = whole_lanes(G::kMaxLegal);

    float noisy_logits[kMaxStride];         ///< gumbel_scale * g + logit.
    std::int32_t kept_visits[kMaxStride];   ///< Visits from the ply before: in q and sigma, not in the schedule.
    std::int32_t candidate[kMaxStride];     ///< Not 0: it is one.
    int num_candidates;
};

/// Completed Q for the actor: q where visited, elsewhere the mixed value (paper, appendix D)
///
///     (raw + sum N * sum_visited(P q) / sum_visited(P)) / (1 + sum N).
///
/// Returns (c_visit + max N) * c_scale / 2, so that sigma(q) = scale * (q + 1), q mapped to [0, 1].
/// Sums are taken in four lanes, so that SIMD needs no reordering and every target adds alike.
template <class NodeT>
float complete_q(const NodeT& node, const Edges& edges, const SearchConfig& config, float* completed) {
    Floats prior_sum{};
    Floats value_sum{};
    Ints total{};
    Ints most{};
    for (int i = 0; i < edges.stride; i += kLanes) {
        const Ints visits = load<Ints>(edges.visits + i);
        const Floats prior = visits > 0 ? load<Floats>(edges.prior + i) : Floats{};
        prior_sum += prior;
        value_sum += prior * load<Floats>(edges.q + i);
        total += visits;
        most = larger_of(visits, most);
    }
    const float sign = node.sign();
    float mixed = node.raw_value;
    if (sum_of(total) > 0) {
        const float weighted = sum_of(value_sum) / sum_of(prior_sum);
        const float visits = static_cast<float>(sum_of(total));
        mixed = (mixed + visits * weighted) / (1.0f + visits);
    }
    for (int i = 0; i < edges.stride; i += kLanes) {
        store(completed + i, sign * (load<Ints>(edges.visits + i) > 0 ? load<Floats>(edges.q + i) : in_all(mixed)));
    }
    return (config.c_visit + static_cast<float>(spread_largest(most)[0])) * config.c_scale * 0.5f;
}

/// The improved policy pi' = softmax(logit + sigma(completed q)), left unnormalised in `weights`; returns its sum.
inline float improve_policy(const Edges& edges, const float* completed, float scale, float* weights) {
    Floats most = in_all(kPadLogit);
    for (int i = 0; i < edges.stride; i += kLanes) {
        const Floats sharpened = load<Floats>(edges.logit + i) + scale * (load<Floats>(completed + i) + 1.0f);
        store(weights + i, sharpened);
        most = larger_of(sharpened, most);
    }
    const Floats largest = spread_largest(most);
    Floats sum{};
    for (int i = 0; i < edges.stride; i += kLanes) {
        const Floats weight = exp32(load<Floats>(weights + i) - largest);
        store(weights + i, weight);
        sum += weight;
    }
    return sum_of(sum);
}

/// Below the root: argmax of pi'(a) - n(a) / (1 + sum n) (paper, section 5). In-flight leaves count in n and its sum, not in q.
/// Solved children are left out, as in select_puct.
template <class NodeT>
int select_gumbel(const NodeT& node, const Edges& edges, const SearchConfig& config, float* completed, float* scores) {
    const float scale = complete_q(node, edges, config, completed);
    const float sum = improve_policy(edges, completed, scale, scores);
    const float started = static_cast<float>(node.visits + node.in_flight);
    FirstLargest best;
    for (int i = 0; i < edges.stride; i += kLanes) {
        const Ints visits = load<Ints>(edges.visits + i) + load_shorts(edges.in_flight + i);
        const Floats score = load<Floats>(scores + i) / sum - to_floats(visits) / started;
        const Ints open = (lanes_from(i) < edges.count) & (load<Ints>(edges.child + i) < kSolvedChild);
        best.take(i, open ? score : in_all(kPadLogit));
    }
    return best.at();
}

/// The survivor of sequential halving: most visits in this ply, then the largest score; never an action proven lost.
template <Game G>
int survivor(const Edges& edges, float sign, const RootPlan<G>& plan, const float* logits, const float* completed, float scale) {
    int best = -1;
    std::int32_t best_visits = 0;
    float best_score = 0.0f;
    for (int i = 0; i < edges.count; ++i) {
        if (edges.lost(i, sign)) continue;
        const std::int32_t visits = edges.visits[i] - plan.kept_visits[i];
        const float score = logits[i] + scale * (completed[i] + 1.0f);
        if (best < 0 || visits > best_visits || (visits == best_visits && score > best_score)) {
            best = i;
            best_visits = visits;
            best_score = score;
        }
    }
    return best;
}

/// The algorithm, as PlySearch asks for it.
struct Gumbel {
    static int most_candidates(const SearchConfig& config, int legal) { return std::min(config.max_considered_actions, legal); }

    /// A kept subtree, trimmed to num_simulations nodes, and one node for each simulation of the ply.
    static int node_capacity(const SearchConfig& config, int) { return 2 * config.num_simulations + 1; }

    /// Whether the ply surely visits an action of the root: the first round of sequential halving visits every candidate.
    template <Game G>
    static bool will_visit(const RootPlan<G>& plan, int edge) {
        return plan.candidate[edge] != 0;
    }

    /// Simulations of the budget that are done: those of this ply.
    static std::int32_t done(const auto&, std::int32_t simulations) { return simulations; }

    /// Gumbel-top-k (paper, section 3): the candidates are the actions with the largest g + logit.
    template <Game G, class TreeT>
    static void prepare(const TreeT& tree, const SearchConfig& config, const PlyKey& key, RootPlan<G>& plan) {
        Rng rng = key.rng(Purpose::kGumbel);
        const Edges edges = tree.edges(TreeT::kRoot);
        for (int i = 0; i < edges.count; ++i) {
            plan.noisy_logits[i] = config.gumbel_scale * rng.gumbel() + edges.logit[i];
            plan.kept_visits[i] = edges.visits[i];
            plan.candidate[i] = 0;
        }
        for (int pad = edges.count; pad < edges.stride; ++pad) plan.candidate[pad] = plan.kept_visits[pad] = 0;
        plan.num_candidates = edges.count < config.max_considered_actions ? edges.count : config.max_considered_actions;
        for (int chosen = 0; chosen < plan.num_candidates; ++chosen) {
            int best = -1;
            for (int i = 0; i < edges.count; ++i) {
                if (plan.candidate[i] == 0 && (best < 0 || plan.noisy_logits[i] > plan.noisy_logits[best])) best = i;
            }
            plan.candidate[best] = 1;
        }
    }

    template <Game G, class TreeT>
    static int select(const TreeT& tree, std::int32_t index, const SearchConfig& config, const HalvingSchedule& schedule,
                      const RootPlan<G>& plan, std::int32_t simulations) {
        const auto& node = tree.node(index);
        if (index == TreeT::kRoot) return select_at_root(tree, config, schedule, plan, simulations + node.in_flight);
        float completed[TreeT::kMaxStride];
        float scores[TreeT::kMaxStride];
        return select_gumbel(node, tree.edges(index), config, completed, scores);
    }

    /// At the root: among the candidates with the considered number of visits, argmax of g + logit + sigma(completed q).
    /// `simulation` counts those started in this ply. A solved candidate keeps its turns in the schedule: such a simulation ends
    /// at once with the exact value and asks for no evaluation, so the ranking uses exact q and nothing below is searched again.
    template <Game G, class TreeT>
    static int select_at_root(const TreeT& tree, const SearchConfig& config, const HalvingSchedule& schedule, const RootPlan<G>& plan,
                              int simulation) {
        const auto& root = tree.root();
        const Edges edges = tree.edges(TreeT::kRoot);
        float completed[TreeT::kMaxStride];
        const float scale = complete_q(root, edges, config, completed);
        const std::int32_t considered = schedule.considered(plan.num_candidates, simulation);
        FirstLargest best;
        for (int i = 0; i < edges.stride; i += kLanes) {
            const Ints turns = load<Ints>(edges.visits + i) + load_shorts(edges.in_flight + i) - load<Ints>(plan.kept_visits + i);
            const Ints competes = (load<Ints>(plan.candidate + i) != 0) & (turns == considered);
            const Floats score = load<Floats>(plan.noisy_logits + i) + scale * (load<Floats>(completed + i) + 1.0f);
            best.take(i, competes ? score : in_all(kPadLogit));
        }
        return best.at();
    }

    /// Policy target: pi'. Plays the survivor; best_action is the survivor ranked without the Gumbel noise.
    /// root_value is the value of pi' under completed q: the visits of sequential halving are forced, their mean is not a value.
    template <Game G, class TreeT>
    static Decision<G> decide(const TreeT& tree, const SearchConfig& config, const PlyKey& key, const RootPlan<G>& plan) {
        const auto& root = tree.root();
        if (root.solved()) return decide_proven<G>(tree, plan.noisy_logits, false, key.rng(Purpose::kTemperature));
        const Edges edges = tree.edges(TreeT::kRoot);
        const float sign = root.sign();
        Decision<G> decision;
        float completed[TreeT::kMaxStride];
        float weights[TreeT::kMaxStride];
        const float scale = complete_q(root, edges, config, completed);
        const float sum = improve_policy(edges, completed, scale, weights);
        float value = 0.0f;
        for (int i = 0; i < edges.count; ++i) value += weights[i] / sum * completed[i];
        set_policy(decision, edges, weights);
        decision.action = edges.action[survivor<G>(edges, sign, plan, plan.noisy_logits, completed, scale)];
        decision.best_action = edges.action[survivor<G>(edges, sign, plan, edges.logit, completed, scale)];
        decision.root_value = sign * clamp(sign * value, root.lower, root.upper);
        decision.proven = false;
        return decision;
    }
};

}  // namespace azq
