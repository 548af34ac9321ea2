/// Exact values: bounds proven by terminal nodes, propagated towards the root.
///
/// Every node carries an interval that contains its exact value (Cazenave and Saffidine, "Score Bounded Monte-Carlo Tree
/// Search", CG 2010). A terminal node's is a point; an actor's lower bound is the best lower bound among its children and its
/// upper bound the best upper bound, a child not yet created counting as unknown. Equal bounds: the node is solved.
#pragma once

#include "azq/search/tree.hpp"

namespace azq {

/// Intersects a node's interval with what its children prove; returns whether it became narrower.
template <Game G>
bool tighten(Tree<G>& tree, std::int32_t index) {
    auto& node = tree.node(index);
    const float sign = node.sign();
    const Edges edges = tree.edges(index);
    float low = -1.0f;
    float high = -1.0f;
    for (int i = 0; i < edges.count; ++i) {
        if (edges.child[i] == kNoChild) {
            high = 1.0f;
            continue;
        }
        const auto& child = tree.node(edges.child[i] & ~kSolvedChild);
        const float child_low = sign > 0.0f ? child.lower : -child.upper;
        const float child_high = sign > 0.0f ? child.upper : -child.lower;
        low = child_low > low ? child_low : low;
        high = child_high > high ? child_high : high;
    }
    const float lower = sign > 0.0f ? low : -high;
    const float upper = sign > 0.0f ? high : -low;
    const bool narrower = lower > node.lower || upper < node.upper;
    node.lower = lower > node.lower ? lower : node.lower;
    node.upper = upper < node.upper ? upper : node.upper;
    return narrower;
}

/// A kept root may be solved while trimming (Tree::keep_subtree) took the child that proved it: nothing proven-best is left to
/// play. Its interval then starts again from the children that are left.
template <Game G>
void forget_lost_proof(Tree<G>& tree) {
    auto& root = tree.root();
    if (!root.solved()) return;
    const Edges edges = tree.edges(Tree<G>::kRoot);
    for (int i = 0; i < edges.count; ++i) {
        if (edges.solved(i) && edges.q[i] == root.lower) return;
    }
    root.lower = -1.0f;
    root.upper = 1.0f;
    tighten(tree, Tree<G>::kRoot);
}

}  // namespace azq
