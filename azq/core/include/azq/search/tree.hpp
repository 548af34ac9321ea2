/// The search tree of a game without chance or secrets: every node holds its position. Layout: tree_rows.hpp.
///
/// Keeping a subtree is one pass that slides records down. Values and bounds are player 0's (value.hpp).
#pragma once

#include "azq/game.hpp"
#include "azq/search/tree_rows.hpp"
#include "azq/search/value.hpp"

namespace azq {

/// The header of a node's record.
template <class State>
struct Node {
    State state;
    std::int32_t parent;      ///< kNoChild at the root.
    std::int32_t visits;      ///< Simulations that ended in or passed through it, its own evaluation included.
    float raw_value;          ///< The evaluator's.
    float mean;               ///< Mean of raw_value and of all values backed up through it.
    float lower;              ///< Proven bounds of the exact value; equal: solved.
    float upper;
    std::uint16_t parent_edge;
    std::uint16_t num_edges;
    std::uint16_t in_flight;  ///< Leaves below it (or itself) that wait for their evaluation.
    std::int8_t actor;
    NodeStatus status;
    bool has_solved_child;

    bool solved() const { return lower == upper; }
    float sign() const { return sign_of(actor); }  ///< Turns values of the tree into the actor's.
};

template <Game G>
class Tree : public TreeRows<Node<typename G::State>, G::kMaxLegal> {
    using Base = TreeRows<Node<typename G::State>, G::kMaxLegal>;

  public:
    using NodeT = Node<typename G::State>;
    using Base::edges;
    using Base::end;
    using Base::kMaxStride;
    using Base::next;
    using Base::node;
    using Base::num_nodes;

    void attach(const Room& room) { this->attach_rows(room); }

    /// Empties the tree and makes `state` its root.
    void reset(const G& rules, const typename G::State& state) {
        this->clear();
        create(rules, state, kNoChild, 0);
    }

    /// Creates the child that an edge of a node leads to.
    std::int32_t create_child(const G& rules, std::int32_t parent, int edge) {
        typename G::State state = node(parent).state;
        rules.apply(state, edges(parent).action[edge]);
        const std::int32_t child = create(rules, state, parent, edge);
        edges(parent).child[edge] = child;
        return child;
    }

    /// Makes a child of the root the new root and frees the rest. At most `max_nodes` nodes are kept, the oldest, which are the
    /// nearest to the root; an edge to a node cut off keeps its statistics, and its child is evaluated again when reached.
    /// `remap` is scratch of `capacity_lines` entries.
    void keep_subtree(std::int32_t new_root, int max_nodes, std::int32_t* remap) {
        const std::int32_t old_end = end();
        this->clear();
        for (std::int32_t old = new_root, after = 0; old < old_end; old = after) {
            after = next(old);
            remap[old] = kNoChild;
            const std::int32_t old_parent = node(old).parent;
            const bool inside = old == new_root || (old_parent >= new_root && remap[old_parent] != kNoChild);
            if (!inside) continue;
            const std::int32_t parent = old == new_root ? kNoChild : remap[old_parent];
            const int parent_edge = node(old).parent_edge;
            if (num_nodes() < max_nodes) remap[old] = this->slide(old, parent);
            if (parent == kNoChild) continue;
            std::int32_t& link = edges(parent).child[parent_edge];
            link = remap[old] == kNoChild ? kNoChild : remap[old] | (link & kSolvedChild);
        }
    }

  private:
    std::int32_t create(const G& rules, const typename G::State& state, std::int32_t parent, int parent_edge) {
        this->make_room();
        const std::int32_t index = end();
        NodeT& created = node(index);
        created.state = state;
        created.parent = parent;
        created.visits = 0;
        created.raw_value = 0.0f;
        created.mean = 0.0f;
        created.parent_edge = static_cast<std::uint16_t>(parent_edge);
        created.in_flight = 0;
        created.actor = static_cast<std::int8_t>(rules.actor(state));
        created.has_solved_child = false;
        std::uint16_t actions[kMaxStride] = {};
        int count = 0;
        if (created.actor == kTerminalPlayer) {
            created.status = NodeStatus::kTerminal;
            created.lower = created.upper = rules.returns(state, 0);
        } else {
            created.status = NodeStatus::kFresh;
            created.lower = -1.0f;
            created.upper = 1.0f;
            count = rules.legal(created.state, actions);
        }
        this->append(actions, count);
        return index;
    }
};

}  // namespace azq
