/// The tree of information sets: nodes without positions, found by a key of what their player knows.
#pragma once

#include "azq/search/tree_rows.hpp"

namespace azq {

/// The header of a node's record; the names that selection and decision read are those of Node. A node may be reached from several,
/// since what another player knew on the way is not what this one knows: `parent` is the first of them, for those who look at trees.
struct InfosetNode {
    std::int32_t parent;  ///< kNoChild at the root.
    std::int32_t visits;
    float raw_value;
    float mean;
    std::uint16_t parent_edge;
    std::uint16_t num_edges;
    std::uint16_t in_flight;
    std::int8_t actor;
    NodeStatus status;

    static constexpr float lower = -1.0f;  ///< Nothing is proven about a sampled value.
    static constexpr float upper = 1.0f;
    static constexpr bool has_solved_child = false;
    static bool solved() { return false; }
    static float sign() { return 1.0f; }
};

/// The nodes by their keys: a hash table in the tree's own memory.
class NodeTable {
  public:
    static std::size_t entries(int node_capacity) {
        std::size_t count = 4;
        while (count < 2 * static_cast<std::size_t>(node_capacity)) count *= 2;
        return count;
    }
    static std::size_t memory_bytes(int node_capacity) { return entries(node_capacity) * sizeof(Entry); }

    /// Memory of zeros, once.
    void attach(std::byte* memory, int node_capacity) {
        table_ = reinterpret_cast<Entry*>(memory);
        mask_ = entries(node_capacity) - 1;
    }

    void clear() { ++generation_; }

    /// Starts fetching what `at` touches first.
    void prefetch(std::uint64_t key) const { prefetch_lines(&table_[static_cast<std::size_t>(key) & mask_]); }

    /// Where the node is, or is to be written: kNoChild where it is new.
    std::int32_t& at(std::uint64_t key) {
        for (std::size_t place = static_cast<std::size_t>(key) & mask_;; place = (place + 1) & mask_) {
            Entry& entry = table_[place];
            if (entry.generation != generation_) {
                entry = Entry{key, kNoChild, generation_};
                return entry.node;
            }
            if (entry.key == key) return entry.node;
        }
    }

  private:
    struct Entry {
        std::uint64_t key;
        std::int32_t node;
        std::uint32_t generation;
    };

    Entry* table_ = nullptr;
    std::size_t mask_ = 0;
    std::uint32_t generation_ = 0;
};

template <class G>
class InfosetTree : public TreeRows<InfosetNode, G::kMaxLegal> {
    using Base = TreeRows<InfosetNode, G::kMaxLegal>;

  public:
    using NodeT = InfosetNode;

    static std::size_t memory_bytes(int node_capacity) {
        return Base::capacity_lines(node_capacity) * kLine + NodeTable::memory_bytes(node_capacity);
    }

    void attach(std::byte* memory, int node_capacity) {
        this->attach_rows(Room{memory, static_cast<std::int32_t>(Base::capacity_lines(node_capacity))});
        nodes_.attach(memory + Base::capacity_lines(node_capacity) * kLine, node_capacity);
    }

    void reset() {
        this->clear();
        nodes_.clear();
    }

    /// See NodeTable.
    void prefetch_key(std::uint64_t key) const { nodes_.prefetch(key); }
    std::int32_t& at(std::uint64_t key) { return nodes_.at(key); }

    /// A node for a player with these actions (stride of them readable).
    std::int32_t create(int actor, const std::uint16_t* actions, int count, Step from) {
        const std::int32_t index = this->end();
        this->node(index) = NodeT{from.node, 0, 0.0f, 0.0f, static_cast<std::uint16_t>(from.edge), 0, 0, static_cast<std::int8_t>(actor), NodeStatus::kFresh};
        this->append(actions, count);
        return index;
    }

  private:
    NodeTable nodes_;
};

}  // namespace azq
