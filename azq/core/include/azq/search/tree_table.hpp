/// A whole tree as tables, for tests and for people who want to look at a search.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "azq/game.hpp"
#include "azq/search/tree_rows.hpp"

namespace azq {

/// N nodes in the order of their creation, A actions; values and bounds are player 0's, or with chance or hidden hands those of
/// the node's own actor.
struct TreeTable {
    std::vector<std::int32_t> parent;       ///< (N,), -1 at the root.
    std::vector<std::int32_t> action;       ///< (N,) that led here, -1 at the root.
    std::vector<std::int8_t> actor;         ///< (N,)
    std::vector<std::int32_t> visits;       ///< (N,)
    std::vector<float> raw_value;           ///< (N,)
    std::vector<float> mean;                ///< (N,)
    std::vector<float> lower;               ///< (N,)
    std::vector<float> upper;               ///< (N,)
    std::vector<std::int32_t> child_visits; ///< (N, A)
    std::vector<float> prior;               ///< (N, A), 0 where illegal; the root's with its noise
    std::vector<float> q;                   ///< (N, A), NaN where unvisited
};

template <Game G, class TreeT>
TreeTable tabulate(const TreeT& tree) {
    TreeTable table;
    std::unordered_map<std::int32_t, std::int32_t> numbers{{kNoChild, -1}};
    for (std::int32_t index = TreeT::kRoot; index < tree.end(); index = tree.next(index)) {
        const auto& node = tree.node(index);
        numbers.emplace(index, static_cast<std::int32_t>(table.parent.size()));
        table.parent.push_back(numbers.at(node.parent));
        table.action.push_back(node.parent == kNoChild ? -1 : tree.edges(node.parent).action[node.parent_edge]);
        table.actor.push_back(node.actor);
        table.visits.push_back(node.visits);
        table.raw_value.push_back(node.raw_value);
        table.mean.push_back(node.mean);
        table.lower.push_back(node.lower);
        table.upper.push_back(node.upper);
        const std::size_t row = table.q.size();
        table.child_visits.resize(row + G::kNumActions, 0);
        table.prior.resize(row + G::kNumActions, 0.0f);
        table.q.resize(row + G::kNumActions, std::numeric_limits<float>::quiet_NaN());
        const Edges edges = tree.edges(index);
        for (int i = 0; i < edges.count; ++i) {
            table.child_visits[row + edges.action[i]] = edges.visits[i];
            table.prior[row + edges.action[i]] = edges.prior[i];
            if (edges.visits[i] > 0) table.q[row + edges.action[i]] = edges.q[i];
        }
    }
    return table;
}

}  // namespace azq
