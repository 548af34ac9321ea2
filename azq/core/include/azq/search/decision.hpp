/// What a spent search says: the policy target, the action to play and the root's value.
#pragma once

#include "azq/search/config.hpp"
#include "azq/game.hpp"
#include "azq/search/tree_rows.hpp"
#include "azq/search/value.hpp"

namespace azq {

/// What an algorithm may fix at its root before a ply's first simulation, and for all plies (gumbel.hpp).
template <Game G>
struct RootPlan;
class HalvingSchedule;

template <Game G>
struct Decision {
    float policy[G::kNumActions];  ///< Policy target; 0 where illegal, sums to 1.
    int action;                    ///< What self-play plays.
    int best_action;               ///< Without exploration.
    float root_value;              ///< For the player to move.
    bool proven;                   ///< root_value is exact.
    float others[kValueSize<G>];   ///< With a value per seat, entry r > 0: that of player (mover + r) mod n.
};

/// What the random numbers of a ply are keyed by, and how many decisions came before it (chance plies are none).
struct PlyKey {
    std::uint64_t seed;
    std::uint64_t uid;
    std::uint32_t ply;
    std::int32_t decisions;

    Rng rng(Purpose purpose) const { return Rng(seed, uid, ply, purpose); }
};

/// An edge drawn with probability weight / sum of weights; the last one with weight where rounding runs over the end.
inline int draw_edge(const float* weights, int count, Rng& rng) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) sum += weights[i];
    const float target = rng.uniform() * sum;
    float passed = 0.0f;
    int last = 0;
    for (int i = 0; i < count; ++i) {
        if (weights[i] <= 0.0f) continue;
        last = i;
        passed += weights[i];
        if (target < passed) break;
    }
    return last;
}

/// The edge with the largest score; ties go to the lowest action.
inline int best_edge(const float* scores, int count) {
    int best = 0;
    for (int i = 1; i < count; ++i) best = scores[i] > scores[best] ? i : best;
    return best;
}

/// Writes weights / sum of weights as the policy over all actions.
template <Game G>
void set_policy(Decision<G>& decision, const Edges& edges, const float* weights) {
    float sum = 0.0f;
    for (int i = 0; i < edges.count; ++i) sum += weights[i];
    for (float& share : decision.policy) share = 0.0f;
    for (int i = 0; i < edges.count; ++i) decision.policy[edges.action[i]] = weights[i] / sum;
}

/// A solved root: the target is uniform on the proven-best actions, those whose own exact value equals the root's.
/// best_action is the most visited of them (lost positions: the one the search found hardest to refute). What self-play plays:
/// under PUCT a uniform draw among them in the temperature plies, then best_action; under Gumbel the largest
/// `noisy_logits` among them, so that variety comes from the same noise as in an unsolved position.
template <Game G, class TreeT>
Decision<G> decide_proven(const TreeT& tree, const float* noisy_logits, bool draw, Rng rng) {
    const auto& root = tree.root();
    const Edges edges = tree.edges(TreeT::kRoot);
    Decision<G> decision;
    float uniform[G::kMaxLegal] = {};
    float visits[G::kMaxLegal] = {};
    float noisy[G::kMaxLegal] = {};
    for (int i = 0; i < edges.count; ++i) {
        const bool best = edges.solved(i) && edges.q[i] == root.lower;
        uniform[i] = best ? 1.0f : 0.0f;
        visits[i] = best ? static_cast<float>(edges.visits[i]) : -1.0f;
        noisy[i] = best && noisy_logits != nullptr ? noisy_logits[i] : kPadLogit;
    }
    set_policy(decision, edges, uniform);
    const int most = best_edge(visits, edges.count);
    decision.best_action = edges.action[most];
    const int played = noisy_logits != nullptr ? best_edge(noisy, edges.count) : (draw ? draw_edge(uniform, edges.count, rng) : most);
    decision.action = edges.action[played];
    decision.root_value = root.sign() * root.lower + 0.0f;  // no negative zero
    decision.proven = true;
    return decision;
}

}  // namespace azq
