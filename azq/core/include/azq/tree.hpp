/// One search tree in one block of memory: a row of records, one per node, in the order of their creation.
///
///     | header (Node), one cache line | statistics of its n legal actions (Edges) | next record ...
///
/// The statistics are arrays of `stride` entries, n rounded up to 4 lanes, so that scoring all actions is straight SIMD:
///
///     prior f32 | q f32 | visits i32 | child i32 | logit f32 | in_flight u16 | action u16        24 bytes an edge
///
/// Pad lanes have prior, q and visits 0 and logit kPadLogit. A node is named by the offset of its record in cache lines: with
/// thousands of trees nearly every step down is a cache miss, and one name is enough to fetch header and statistics at once.
/// A parent always lies before its children: keeping a subtree is one pass that slides records down.
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
};

/// The statistics of a node's legal actions.
struct Edges {
    float* prior;
    float* q;               ///< Mean value of the simulations through the edge; exact once its child is solved.
    std::int32_t* visits;   ///< Completed simulations.
    std::int32_t* child;    ///< The child | kSolvedChild, or kNoChild.
    float* logit;           ///< The evaluator's, unchanged.
    std::uint16_t* in_flight;
    std::uint16_t* action;
    int count;              ///< Legal actions.
    int stride;

    bool solved(int edge) const { return child[edge] >= kSolvedChild; }

    /// Proven lost for the actor: never played while something else may be.
    bool lost(int edge, float sign) const { return solved(edge) && sign * q[edge] <= -1.0f; }
};

template <Game G>
class Tree {
  public:
    using NodeT = Node<typename G::State>;
    static_assert(std::is_trivially_copyable_v<NodeT>);

    static constexpr int kMaxStride = (G::kMaxLegal + 3) & ~3;
    static constexpr std::size_t kLine = 64;
    static constexpr std::size_t kEdgeBytes = 24;
    static constexpr std::size_t kHeaderBytes = (sizeof(NodeT) + kLine - 1) / kLine * kLine;
    static constexpr std::int32_t kRoot = 0;

    /// Lines of a record.
    static constexpr std::int32_t lines(int num_edges) {
        const auto edge_bytes = static_cast<std::size_t>((num_edges + 3) & ~3) * kEdgeBytes;
        return static_cast<std::int32_t>((kHeaderBytes + edge_bytes + kLine - 1) / kLine);
    }

    /// Lines of a tree of so many nodes.
    static std::size_t capacity_lines(int node_capacity) {
        return static_cast<std::size_t>(node_capacity) * static_cast<std::size_t>(lines(G::kMaxLegal));
    }

    /// Uses memory (64-byte aligned, `capacity_lines` lines) that the caller keeps alive; its content is not read.
    void attach(std::byte* memory) {
        memory_ = memory;
        end_ = 0;
        num_nodes_ = 0;
    }

    NodeT& node(std::int32_t index) { return *reinterpret_cast<NodeT*>(memory_ + offset(index)); }
    const NodeT& node(std::int32_t index) const { return *reinterpret_cast<const NodeT*>(memory_ + offset(index)); }
    NodeT& root() { return node(kRoot); }
    const NodeT& root() const { return node(kRoot); }
    int num_nodes() const { return num_nodes_; }
    std::int32_t end() const { return end_; }  ///< Where the next node will be.
    std::int32_t next(std::int32_t index) const { return index + lines(node(index).num_edges); }

    Edges edges(std::int32_t index) const {
        const int count = node(index).num_edges;
        const int stride = (count + 3) & ~3;
        auto* prior = reinterpret_cast<float*>(memory_ + offset(index) + kHeaderBytes);
        auto* ints = reinterpret_cast<std::int32_t*>(prior + 2 * stride);
        auto* shorts = reinterpret_cast<std::uint16_t*>(prior + 5 * stride);
        return Edges{prior, prior + stride, ints, ints + stride, prior + 4 * stride, shorts, shorts + stride, count, stride};
    }

    /// Starts fetching a record into the cache (its first lines, where it is a long one).
    void prefetch(std::int32_t index) const {
        constexpr std::int32_t kFetched = lines(G::kMaxLegal) < 5 ? lines(G::kMaxLegal) : 5;
        for (std::int32_t line = 0; line < kFetched; ++line) __builtin_prefetch(memory_ + offset(index + line), 1);
    }

    /// Empties the tree and makes `state` its root.
    void reset(const G& rules, const typename G::State& state) {
        end_ = 0;
        num_nodes_ = 0;
        create(rules, state, kNoChild, 0);
    }

    /// Creates the child that an edge of a node leads to.
    std::int32_t create_child(const G& rules, std::int32_t parent, int edge) {
        typename G::State state = node(parent).state;
        const Edges edges = this->edges(parent);
        rules.apply(state, edges.action[edge]);
        const std::int32_t child = create(rules, state, parent, edge);
        edges.child[edge] = child;
        return child;
    }

    /// Makes a child of the root the new root and frees the rest. At most `max_nodes` nodes are kept, the oldest, which are the
    /// nearest to the root; an edge to a node cut off keeps its statistics, and its child is evaluated again when reached.
    /// `remap` is scratch of `capacity_lines` entries.
    void keep_subtree(std::int32_t new_root, int max_nodes, std::int32_t* remap) {
        const std::int32_t old_end = end_;
        end_ = 0;
        num_nodes_ = 0;
        for (std::int32_t old = new_root, after = 0; old < old_end; old = after) {
            after = next(old);
            remap[old] = kNoChild;
            const std::int32_t old_parent = node(old).parent;
            const bool inside = old == new_root || (old_parent >= new_root && remap[old_parent] != kNoChild);
            if (!inside) continue;
            const std::int32_t parent = old == new_root ? kNoChild : remap[old_parent];
            const int parent_edge = node(old).parent_edge;
            if (num_nodes_ < max_nodes) remap[old] = slide(old, parent);
            if (parent == kNoChild) continue;
            std::int32_t& link = edges(parent).child[parent_edge];
            link = remap[old] == kNoChild ? kNoChild : remap[old] | (link & kSolvedChild);
        }
    }

  private:
    static std::size_t offset(std::int32_t index) { return static_cast<std::size_t>(index) * kLine; }

    std::int32_t create(const G& rules, const typename G::State& state, std::int32_t parent, int parent_edge) {
        const std::int32_t index = end_;
        NodeT& node = this->node(index);
        node.state = state;
        node.parent = parent;
        node.visits = 0;
        node.raw_value = 0.0f;
        node.mean = 0.0f;
        node.parent_edge = static_cast<std::uint16_t>(parent_edge);
        node.num_edges = 0;
        node.in_flight = 0;
        node.actor = static_cast<std::int8_t>(rules.actor(state));
        node.has_solved_child = false;
        if (node.actor == kTerminalPlayer) {
            node.status = NodeStatus::kTerminal;
            node.lower = node.upper = rules.returns(state, 0);
        } else {
            node.status = NodeStatus::kFresh;
            node.lower = -1.0f;
            node.upper = 1.0f;
            create_edges(rules, index);
        }
        end_ = next(index);
        ++num_nodes_;
        return index;
    }

    void create_edges(const G& rules, std::int32_t index) {
        std::uint16_t actions[kMaxStride] = {};
        node(index).num_edges = static_cast<std::uint16_t>(rules.legal(node(index).state, actions));
        const Edges edges = this->edges(index);
        std::memset(edges.prior, 0, static_cast<std::size_t>(edges.stride) * kEdgeBytes);
        for (int i = 0; i < edges.stride; ++i) {
            edges.child[i] = kNoChild;
            edges.logit[i] = kPadLogit;
            edges.action[i] = actions[i];
        }
    }

    /// Moves a record down to the next free place, which never passes a record that is still to be moved.
    std::int32_t slide(std::int32_t old, std::int32_t parent) {
        const std::int32_t index = end_;
        const std::int32_t size = lines(node(old).num_edges);
        std::memmove(memory_ + offset(index), memory_ + offset(old), static_cast<std::size_t>(size) * kLine);
        node(index).parent = parent;
        end_ = index + size;
        ++num_nodes_;
        return index;
    }

    std::byte* memory_ = nullptr;
    std::int32_t end_ = 0;
    std::int32_t num_nodes_ = 0;
};

}  // namespace azq
