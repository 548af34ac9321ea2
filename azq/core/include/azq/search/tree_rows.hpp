/// Rows of records in one block of memory: one record per node, in the order of their creation.
///
///     | header (a node), one cache line | statistics of its n legal actions (Edges) | next record ...
///
/// The statistics are arrays of `stride` entries, n rounded up to 4 lanes, so that scoring all actions is straight SIMD:
///
///     prior f32 | q f32 | visits i32 | child i32 | logit f32 | in_flight u16 | action u16        24 bytes an edge
///
/// Pad lanes have prior, q and visits 0, logit kPadLogit and some action. A node is named by the offset of its record in cache lines: with
/// thousands of trees nearly every step down is a cache miss, and one name is enough to fetch header and statistics at once.
/// A parent always lies before its children.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "azq/lanes.hpp"
#include "azq/prefetch.hpp"

namespace azq {

inline constexpr std::int32_t kNoChild = -1;
inline constexpr std::int32_t kSolvedChild = 1 << 30;  ///< Flag in `child`: the child's exact value is known and is the edge's q.
inline constexpr float kPadLogit = -1e30f;
inline constexpr float kMaxLogit = 65504.0f;  ///< The largest finite float16: an infinite logit is as good as this.
inline constexpr float kMinPrior = 1.17549435e-38f;  ///< Keeps weighted means defined (mctx, qtransforms.py).

enum class NodeStatus : std::uint8_t { kFresh, kPending, kExpanded, kTerminal };

/// A node on the way of a simulation, and the edge by which it was left; with its stride the statistics are found without the header.
struct Step {
    std::int32_t node;
    std::int16_t edge;  ///< kNoChild at the leaf.
    std::uint16_t stride;
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

/// Memory of one tree, 64-byte aligned: a block, and a larger one to move to when it is full. Both stay the caller's.
struct Room {
    std::byte* block;
    std::int32_t lines;            ///< Of the block; at least a record of most edges.
    std::byte* larger = nullptr;   ///< Of capacity_lines lines; null: the block has as many.
};

/// `NodeT` has a field num_edges, at most `MaxEdges`.
template <class NodeT, int MaxEdges>
class TreeRows {
  public:
    static_assert(std::is_trivially_copyable_v<NodeT>);

    static constexpr int kMaxStride = whole_lanes(MaxEdges);
    static constexpr std::size_t kEdgeBytes = 24;
    static constexpr std::size_t kHeaderBytes = (sizeof(NodeT) + kLine - 1) / kLine * kLine;
    static constexpr std::int32_t kRoot = 0;

    /// Lines of a record.
    static constexpr std::int32_t lines(int num_edges) {
        const auto edge_bytes = static_cast<std::size_t>(whole_lanes(num_edges)) * kEdgeBytes;
        return static_cast<std::int32_t>((kHeaderBytes + edge_bytes + kLine - 1) / kLine);
    }

    /// Lines of a tree of so many nodes.
    static std::size_t capacity_lines(int node_capacity) {
        return static_cast<std::size_t>(node_capacity) * static_cast<std::size_t>(lines(MaxEdges));
    }

    NodeT& node(std::int32_t index) { return *reinterpret_cast<NodeT*>(memory_ + offset(index)); }
    const NodeT& node(std::int32_t index) const { return *reinterpret_cast<const NodeT*>(memory_ + offset(index)); }
    NodeT& root() { return node(kRoot); }
    const NodeT& root() const { return node(kRoot); }
    int num_nodes() const { return num_nodes_; }
    bool moved() const { return moved_; }              ///< To the larger block.
    std::int32_t end() const { return end_; }  ///< Where the next node will be.
    std::int32_t next(std::int32_t index) const { return index + lines(node(index).num_edges); }

    [[gnu::always_inline]] Edges edges(std::int32_t index) const {
        const int count = node(index).num_edges;
        const int stride = whole_lanes(count);
        auto* prior = reinterpret_cast<float*>(memory_ + offset(index) + kHeaderBytes);
        auto* ints = reinterpret_cast<std::int32_t*>(prior + 2 * stride);
        auto* shorts = reinterpret_cast<std::uint16_t*>(prior + 5 * stride);
        return Edges{prior, prior + stride, ints, ints + stride, prior + 4 * stride, shorts, shorts + stride, count, stride};
    }

    /// Starts fetching a record into the cache (its first lines, where it is a long one).
    void prefetch(std::int32_t index) const {
        constexpr std::int32_t kFetched = lines(MaxEdges) < 5 ? lines(MaxEdges) : 5;
        prefetch_lines(memory_ + offset(index), static_cast<std::size_t>(kFetched));
    }

    /// Starts fetching what backing up over a step touches: header, q and visits.
    void prefetch(Step step) const {
        if (step.edge == kNoChild) return prefetch(step.node);
        const std::byte* header = memory_ + offset(step.node);
        const std::byte* q = header + kHeaderBytes + sizeof(float) * (std::size_t{step.stride} + static_cast<std::size_t>(step.edge));
        prefetch_lines(header);
        prefetch_lines(q);
        prefetch_lines(q + sizeof(float) * step.stride);
    }

    Step step(std::int32_t index, int edge) const {
        return {index, static_cast<std::int16_t>(edge), static_cast<std::uint16_t>(whole_lanes(node(index).num_edges))};
    }

  protected:
    /// Uses memory that the caller keeps alive; its content is not read.
    void attach_rows(const Room& room) {
        memory_ = room.block;
        lines_ = room.lines;
        larger_ = room.larger;
        clear();
    }

    /// Makes sure of room for one more record, whatever its size: moves everything once, for good. Names of nodes stay.
    void make_room() {
        if (larger_ == nullptr || end_ + lines(MaxEdges) <= lines_) return;
        std::memcpy(larger_, memory_, offset(end_));
        memory_ = larger_;
        larger_ = nullptr;
        moved_ = true;
    }

    void clear() {
        end_ = 0;
        num_nodes_ = 0;
    }

    /// Gives the node at end(), whose header is written, fresh statistics for these actions (stride of them, the pads any).
    void append(const std::uint16_t* actions, int count) {
        const std::int32_t index = end_;
        node(index).num_edges = static_cast<std::uint16_t>(count);
        const Edges edges = this->edges(index);
        for (int i = 0; i < edges.stride; i += kLanes) {
            store(edges.prior + i, Floats{});
            store(edges.q + i, Floats{});
            store(edges.visits + i, Ints{});
            store(edges.child + i, Ints{} + kNoChild);
            store(edges.logit + i, in_all(kPadLogit));
            store(edges.in_flight + i, Shorts{});
            store(edges.action + i, load<Shorts>(actions + i));
        }
        end_ = next(index);
        ++num_nodes_;
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

  private:
    static std::size_t offset(std::int32_t index) { return static_cast<std::size_t>(index) * kLine; }

    std::byte* memory_ = nullptr;
    std::byte* larger_ = nullptr;
    std::int32_t lines_ = 0;
    bool moved_ = false;
    std::int32_t end_ = 0;
    std::int32_t num_nodes_ = 0;
};

}  // namespace azq
