/// One search tree in one block of memory.
///
///     | nodes: node_capacity x Node | edge blocks, one per player node, in the order of their nodes |
///
/// An edge block holds the statistics of a node's n legal actions as arrays of `stride` entries (n rounded up to 4 lanes):
///
///     prior f32 | q f32 | visits i32 | child i32 | logit f32 | in_flight u16 | action u16        24 bytes an edge
///
/// Arrays, so that scoring all actions of a node is straight SIMD. Pad lanes have prior, q and visits 0 and logit kPadLogit.
/// Nodes are created in order, a parent always before its children: keeping a subtree is one pass that slides nodes down.
/// Values and bounds are player 0's (value.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "azq/game.hpp"
#include "azq/value.hpp"

namespace azq {

inline constexpr std::int32_t kNoChild = -1;
inline constexpr std::int32_t kSolvedChild = 1 << 30;  ///< Flag in `child`: the child's exact value is known and is the edge's q.
inline constexpr float kPadLogit = -1e30f;
inline constexpr float kMaxLogit = 65504.0f;  ///< The largest finite float16: an infinite logit is as good as this.
inline constexpr float kMinPrior = 1.17549435e-38f;  ///< Keeps weighted means defined (mctx, qtransforms.py).

enum class NodeStatus : std::uint8_t { kFresh, kPending, kExpanded, kTerminal };

template <class State>
struct Node {
    State state;
    std::int32_t parent;      ///< Node index; kNoChild at the root.
    std::int32_t edges;       ///< Byte offset of its edge block.
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
    bool has_lost_child;      ///< Some child is proven lost for the actor.

    bool solved() const { return lower == upper; }
};

/// The arrays of one node's edge block.
struct Edges {
    float* prior;
    float* q;               ///< Mean value of the simulations through the edge; exact once its child is solved.
    std::int32_t* visits;   ///< Completed simulations.
    std::int32_t* child;    ///< Node index | kSolvedChild, or kNoChild.
    float* logit;           ///< The evaluator's, unchanged.
    std::uint16_t* in_flight;
    std::uint16_t* action;
    int count;              ///< Legal actions.
    int stride;

    bool solved(int edge) const { return child[edge] >= kSolvedChild; }

    /// Proven lost for the actor: an unsolved node never searches or plays it.
    bool lost(int edge, float sign) const { return solved(edge) && sign * q[edge] <= -1.0f; }
};

template <Game G>
class Tree {
  public:
    using NodeT = Node<typename G::State>;
    static_assert(std::is_trivially_copyable_v<NodeT>);

    static constexpr int kMaxStride = (G::kMaxLegal + 3) & ~3;
    static constexpr std::size_t kEdgeBytes = 24;
    static constexpr std::int32_t kRoot = 0;

    /// Bytes of a tree of so many nodes, a multiple of 64.
    static std::size_t bytes(int node_capacity) {
        return node_bytes(node_capacity) + static_cast<std::size_t>(node_capacity) * kMaxStride * kEdgeBytes;
    }

    /// Uses memory (64-byte aligned, `bytes(node_capacity)`) that the caller keeps alive; its content is not read.
    void attach(std::byte* memory, int node_capacity) {
        nodes_ = reinterpret_cast<NodeT*>(memory);
        edges_ = memory + node_bytes(node_capacity);
        num_nodes_ = 0;
        edge_bytes_ = 0;
    }

    NodeT& node(std::int32_t index) { return nodes_[index]; }
    const NodeT& node(std::int32_t index) const { return nodes_[index]; }
    NodeT& root() { return nodes_[kRoot]; }
    const NodeT& root() const { return nodes_[kRoot]; }
    int num_nodes() const { return num_nodes_; }

    Edges edges(const NodeT& node) const {
        const int stride = (node.num_edges + 3) & ~3;
        auto* prior = reinterpret_cast<float*>(edges_ + node.edges);
        auto* ints = reinterpret_cast<std::int32_t*>(prior + 2 * stride);
        auto* shorts = reinterpret_cast<std::uint16_t*>(prior + 5 * stride);
        return Edges{prior, prior + stride, ints, ints + stride, prior + 4 * stride, shorts, shorts + stride, node.num_edges, stride};
    }

    /// Empties the tree and makes `state` its root.
    void reset(const G& rules, const typename G::State& state) {
        num_nodes_ = 0;
        edge_bytes_ = 0;
        create(rules, state, kNoChild, 0);
    }

    /// Creates the child that an edge of a node leads to; returns its index.
    std::int32_t create_child(const G& rules, std::int32_t parent, int edge) {
        typename G::State state = nodes_[parent].state;
        const Edges edges = this->edges(nodes_[parent]);
        rules.apply(state, edges.action[edge]);
        const std::int32_t index = create(rules, state, parent, edge);
        edges.child[edge] = index;
        return index;
    }

    /// Makes a child of the root the new root and frees the rest. At most `max_nodes` nodes are kept, the oldest, which are the
    /// nearest to the root; an edge to a node cut off keeps its statistics, and its child is evaluated again when reached.
    /// `remap` is scratch of node_capacity entries.
    void keep_subtree(std::int32_t new_root, int max_nodes, std::int32_t* remap) {
        const int old_count = num_nodes_;
        num_nodes_ = 0;
        edge_bytes_ = 0;
        for (std::int32_t old = new_root; old < old_count; ++old) {
            remap[old] = kNoChild;
            const std::int32_t old_parent = nodes_[old].parent;
            const bool inside = old == new_root || (old_parent >= new_root && remap[old_parent] != kNoChild);
            if (!inside) continue;
            const std::int32_t parent = old == new_root ? kNoChild : remap[old_parent];
            const bool kept = num_nodes_ < max_nodes;
            if (kept) remap[old] = slide(old, parent);
            if (parent != kNoChild) {
                std::int32_t& link = edges(nodes_[parent]).child[nodes_[kept ? remap[old] : old].parent_edge];
                link = kept ? remap[old] | (link & kSolvedChild) : kNoChild;
            }
        }
    }

  private:
    static std::size_t node_bytes(int node_capacity) {
        return (static_cast<std::size_t>(node_capacity) * sizeof(NodeT) + 63) & ~std::size_t{63};
    }

    std::int32_t create(const G& rules, const typename G::State& state, std::int32_t parent, int parent_edge) {
        const std::int32_t index = num_nodes_++;
        NodeT& node = nodes_[index];
        node.state = state;
        node.parent = parent;
        node.edges = edge_bytes_;
        node.visits = 0;
        node.raw_value = 0.0f;
        node.mean = 0.0f;
        node.parent_edge = static_cast<std::uint16_t>(parent_edge);
        node.num_edges = 0;
        node.in_flight = 0;
        node.actor = static_cast<std::int8_t>(rules.actor(state));
        node.has_lost_child = false;
        if (node.actor == kTerminalPlayer) {
            node.status = NodeStatus::kTerminal;
            node.lower = node.upper = rules.returns(state, 0);
        } else {
            node.status = NodeStatus::kFresh;
            node.lower = -1.0f;
            node.upper = 1.0f;
            create_edges(rules, node);
        }
        return index;
    }

    void create_edges(const G& rules, NodeT& node) {
        std::uint16_t actions[kMaxStride] = {};
        const int count = rules.legal(node.state, actions);
        node.num_edges = static_cast<std::uint16_t>(count);
        const Edges edges = this->edges(node);
        std::memset(edges.prior, 0, static_cast<std::size_t>(edges.stride) * kEdgeBytes);
        for (int i = 0; i < edges.stride; ++i) {
            edges.child[i] = kNoChild;
            edges.logit[i] = kPadLogit;
            edges.action[i] = actions[i];
        }
        edge_bytes_ += static_cast<std::int32_t>(static_cast<std::size_t>(edges.stride) * kEdgeBytes);
    }

    /// Moves a node and its edge block down to the next free place; never passes a node that is still to be moved.
    std::int32_t slide(std::int32_t old, std::int32_t parent) {
        const std::int32_t index = num_nodes_++;
        NodeT node = nodes_[old];
        const auto block = static_cast<std::size_t>((node.num_edges + 3) & ~3) * kEdgeBytes;
        std::memmove(edges_ + edge_bytes_, edges_ + node.edges, block);
        node.edges = edge_bytes_;
        node.parent = parent;
        nodes_[index] = node;
        edge_bytes_ += static_cast<std::int32_t>(block);
        return index;
    }

    NodeT* nodes_ = nullptr;
    std::byte* edges_ = nullptr;
    std::int32_t num_nodes_ = 0;
    std::int32_t edge_bytes_ = 0;
};

}  // namespace azq
