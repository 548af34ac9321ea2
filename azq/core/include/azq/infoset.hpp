/// Search through chance and hidden hands: information-set search with a value per seat.
///
/// Each simulation redraws what the player at the root cannot know (Cowling, Powley and Whitehouse, "Information Set Monte Carlo
/// Tree Search", IEEE TCIAIG 4(2), 2012), plays down the tree from there and samples chance on the way. A node is a path of
/// actions together with what its player to move observes: whatever he cannot tell apart is one node, so nobody in the tree
/// acts on what he does not know. Without secrets the node is told apart by what chance did. Nodes hold no positions.
///
/// The baseline, plain determinized search (`determinizations` > 0): simulations share a fixed number of worlds, and below the
/// root each world has a tree of its own, in which everybody acts as if he saw it (strategy fusion: Frank and Basin, AIJ 100, 1998).
///
/// Common random numbers: the k-th visit of every root action meets the same hidden hands and the same chance, so that
/// candidates of a Gumbel root differ by what they are and not by their luck.
/// Values belong to players: a node's q, mean and raw value are its own actor's (max^n: Luckhardt and Irani, AAAI 1986).
#pragma once

#include "azq/chance.hpp"
#include "azq/ply.hpp"

namespace azq {

/// The header of a node's record; the names that selection and decision read are those of Node.
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

/// The children of a node by edge and by what tells them apart: a hash table in the tree's own memory.
class ChildTable {
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

    /// Where the child is, or is to be written: kNoChild where it is new.
    std::int32_t& at(std::uint64_t key) {
        for (std::size_t place = static_cast<std::size_t>(key) & mask_;; place = (place + 1) & mask_) {
            Entry& entry = table_[place];
            if (entry.generation != generation_) {
                entry = Entry{key, kNoChild, generation_};
                return entry.child;
            }
            if (entry.key == key) return entry.child;
        }
    }

  private:
    struct Entry {
        std::uint64_t key;
        std::int32_t child;
        std::uint32_t generation;
    };

    Entry* table_ = nullptr;
    std::size_t mask_ = 0;
    std::uint32_t generation_ = 0;
};

template <Game G>
class InfosetTree : public Records<InfosetNode, G::kMaxLegal> {
    using Base = Records<InfosetNode, G::kMaxLegal>;

  public:
    using NodeT = InfosetNode;

    void attach(std::byte* memory) { this->attach_records(memory); }
    void reset() { this->clear(); }

    std::int32_t create(const G& rules, const typename G::State& state, std::int32_t parent, int parent_edge) {
        const std::int32_t index = this->end();
        NodeT& created = this->node(index);
        created = NodeT{parent, 0, 0.0f, 0.0f, static_cast<std::uint16_t>(parent_edge), 0, 0, static_cast<std::int8_t>(rules.actor(state)),
                        NodeStatus::kFresh};
        std::uint16_t actions[Base::kMaxStride] = {};
        this->append(actions, rules.legal(state, actions));
        return index;
    }
};

template <Game G>
class InfosetSearch : public PlySearch<G, InfosetTree<G>> {
    using TreeT = InfosetTree<G>;
    using Base = PlySearch<G, TreeT>;
    using Base::await;
    using Base::context_;
    using Base::cursor_;
    using Base::drop_path;
    using Base::key_;
    using Base::path_;
    using Base::pending_;
    using Base::simulations_;
    using Base::tree_;

  public:
    using State = typename G::State;

    InfosetSearch(const SearchContext<G>& context, std::byte* memory) : Base(context, memory) {
        const int capacity = context.node_capacity();
        children_.attach(memory + TreeT::capacity_lines(capacity) * TreeT::kLine, capacity);
    }

    static std::size_t memory_bytes(int node_capacity) {
        return TreeT::capacity_lines(node_capacity) * TreeT::kLine + ChildTable::memory_bytes(node_capacity);
    }

    const State& pending_state(int which) const { return pending_states_[static_cast<std::size_t>(which)]; }

    /// Starts the search of a position where a player is to move.
    void begin(const State& state, const PlyKey& key) {
        Base::restart(key);
        pending_states_.clear();
        children_.clear();
        tree_.reset();
        root_state_ = state;
        for (float& mean : root_means_) mean = 0.0f;
        tree_.create(context_->rules, state, kNoChild, 0);
    }

    /// As TreeSearch::advance.
    template <class Emit>
    Progress advance(Emit&& emit) {
        if (cursor_ != kNoChild) return descend(emit);
        if (tree_.root().status == NodeStatus::kFresh) {
            state_ = root_state_;
            return hand_out(TreeT::kRoot, emit);
        }
        return Base::stand_at_root();
    }

    /// Gives pending leaf number `which` its evaluation: logits of all actions; one value for the player to move, or one a seat
    /// from his on.
    void apply(int which, const Half* logits, const Half* values) {
        const std::int32_t leaf = pending_[static_cast<std::size_t>(which)];
        const int actor = tree_.node(leaf).actor;
        float of_player[G::kNumPlayers];
        for (int player = 0; player < G::kNumPlayers; ++player) {
            const int seat = (player - actor + G::kNumPlayers) % G::kNumPlayers;
            const float value = clamp(to_float(values[kValueSize<G> == 1 ? 0 : seat]), -1.0f, 1.0f);
            of_player[player] = kValueSize<G> == 1 && seat > 0 ? -value : value;
        }
        Base::add_in_flight(leaf, 0xffff);  // minus one, modulo 2^16
        Base::expand(leaf, logits, of_player[actor]);
        tree_.node(leaf).visits += 1;
        tree_.node(leaf).mean += (of_player[actor] - tree_.node(leaf).mean) / static_cast<float>(tree_.node(leaf).visits);
        back_up(tree_.node(leaf).parent, tree_.node(leaf).parent_edge, of_player);
        Base::settle(which, leaf);
        if (pending_.empty()) pending_states_.clear();
    }

    Decision<G> decide() const {
        Decision<G> decision = Base::decide();
        const int mover = tree_.root().actor;
        for (int seat = 1; seat < kValueSize<G>; ++seat) decision.others[seat] = root_means_[(mover + seat) % G::kNumPlayers];
        return decision;
    }

  private:
    /// One level down from cursor_, through whatever chance does there. At the root the simulation draws its hidden hands first.
    template <class Emit>
    Progress descend(Emit&& emit) {
        if (tree_.node(cursor_).status == NodeStatus::kPending) return drop_path(Progress::kWaiting);
        const int edge = Base::select_edge(cursor_);
        if (cursor_ == TreeT::kRoot) sample_world(edge);
        path_.push_back(cursor_);
        context_->rules.apply(state_, tree_.edges(cursor_).action[edge]);
        const std::uint64_t way = settle(mix(static_cast<std::uint64_t>(cursor_) << 16 | static_cast<std::uint64_t>(edge)));
        if (context_->rules.actor(state_) == kTerminalPlayer) return end_exactly(edge);
        std::int32_t& child = children_.at(told_apart(way));
        if (child == kNoChild) {
            child = tree_.create(context_->rules, state_, cursor_, edge);
            return hand_out(child, emit);
        }
        tree_.prefetch(child);
        cursor_ = child;
        return Progress::kMoving;
    }

    /// The world of a simulation, the same at the k-th visit of every root action.
    void sample_world(int root_edge) {
        const Edges edges = tree_.edges(TreeT::kRoot);
        const auto visit = static_cast<std::uint32_t>(edges.visits[root_edge] + edges.in_flight[root_edge]);
        const auto worlds = static_cast<std::uint32_t>(context_->config.determinizations);
        world_ = worlds == 0 ? visit : visit % worlds;
        state_ = root_state_;
        if constexpr (HasHidden<G>) {
            Rng hands(seed_of(world_), 0, 0, Purpose::kResample);
            context_->rules.resample(state_, tree_.root().actor, hands);
        }
        chance_ = Rng(seed_of(visit), 0, 0, Purpose::kSample);
    }

    std::uint64_t seed_of(std::uint32_t number) const {
        Rng numbers = key_.rng(Purpose::kSample);
        numbers.skip(number);
        const std::uint64_t low = numbers.next();
        return low | static_cast<std::uint64_t>(numbers.next()) << 32;
    }

    /// Lets chance act, and hashes what it did into `way`.
    std::uint64_t settle(std::uint64_t way) {
        if constexpr (HasChance<G>) {
            while (context_->rules.actor(state_) == kChancePlayer) {
                const int outcome = pick_outcome(context_->rules, state_, chance_.uniform());
                context_->rules.apply(state_, outcome);
                const bool seen = !HasHidden<G> || context_->config.determinizations > 0;
                if (seen) way = mix(way + static_cast<std::uint64_t>(outcome) + 1);
            }
        }
        return way;
    }

    /// The key of the node that a way leads to: without secrets the way itself; else who cannot tell two worlds apart is in one node.
    std::uint64_t told_apart(std::uint64_t way) const {
        if constexpr (!HasHidden<G>) return way;
        if (context_->config.determinizations > 0) return mix(way ^ (std::uint64_t{world_} + 1));
        std::uint8_t packed[kPackedSize<G>];
        context_->rules.observe(state_, context_->rules.actor(state_), packed);
        for (std::size_t at = 0; at < kPackedSize<G>; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, packed + at, kPackedSize<G> - at < 8 ? kPackedSize<G> - at : 8);
            way = mix(way ^ word);
        }
        return way;
    }

    /// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
    static std::uint64_t mix(std::uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return (x ^ (x >> 31)) + 0x9e3779b97f4a7c15u;
    }

    template <class Emit>
    Progress hand_out(std::int32_t leaf, Emit&& emit) {
        emit(static_cast<const State&>(state_));
        pending_states_.push_back(state_);
        return await(leaf);
    }

    Progress end_exactly(int edge) {
        float of_player[G::kNumPlayers];
        for (int player = 0; player < G::kNumPlayers; ++player) of_player[player] = context_->rules.returns(state_, player);
        back_up(cursor_, edge, of_player);
        ++simulations_;
        return drop_path(Progress::kMoving);
    }

    /// Back up: every player's value to the nodes where he acts, from an edge of `index` (kNoChild: there is none) to the root.
    void back_up(std::int32_t index, int edge, const float* of_player) {
        while (index != kNoChild) {
            InfosetNode& node = tree_.node(index);
            const float value = of_player[node.actor];
            node.visits += 1;
            node.mean += (value - node.mean) / static_cast<float>(node.visits);
            const Edges edges = tree_.edges(index);
            edges.visits[edge] += 1;
            edges.q[edge] += (value - edges.q[edge]) / static_cast<float>(edges.visits[edge]);
            edge = node.parent_edge;
            index = node.parent;
        }
        add_to_root(of_player);
    }

    /// Every seat's mean at the root, the root's own evaluation included.
    void add_to_root(const float* of_player) {
        const auto visits = static_cast<float>(tree_.root().visits);
        for (int player = 0; player < G::kNumPlayers; ++player) {
            root_means_[player] += (of_player[player] - root_means_[player]) / visits;
        }
    }

    ChildTable children_;
    State root_state_{};
    State state_{};             ///< Of the simulation under way.
    std::uint32_t world_ = 0;   ///< Its hidden hands, by number.
    Rng chance_{0, 0, 0, Purpose::kSample};
    std::vector<State> pending_states_;
    float root_means_[G::kNumPlayers] = {};
};

}  // namespace azq
