/// Search through chance and hidden hands: information-set search with a value per seat.
///
/// Each simulation redraws what the player at the root cannot know (Cowling, Powley and Whitehouse, "Information Set Monte Carlo
/// Tree Search", IEEE TCIAIG 4(2), 2012), plays down the tree from there and samples chance on the way. A node is the actions since
/// the root together with what its player to move observes: whatever he cannot tell apart is one node, so nobody in the tree
/// acts on what he does not know. Without secrets the node is told apart by what chance did.
///
/// Where hands are hidden, an evaluation at another player's node knows his hand and not the root player's. So a simulation goes on
/// from there, by that player's priors, until the root's player is to move at a new node or the game ends, and every player's
/// value is the last that he himself estimated. Plies that leave no choice are passed without an evaluation.
///
/// The baseline, plain determinized search (`determinizations` > 0): simulations share a fixed number of worlds, and below the
/// root each world has a tree of its own, in which everybody acts as if he saw it (strategy fusion: Frank and Basin, AIJ 100, 1998).
///
/// Common random numbers: the k-th visit of every root action meets the same hidden hands and the same chance, so that
/// candidates of a Gumbel root differ by what they are and not by their luck.
/// Values belong to players: a node's q, mean and raw value are its own actor's (max^n: Luckhardt and Irani, AAAI 1986).
#pragma once

#include <cstring>

#include "azq/chance.hpp"
#include "azq/search/infoset_tree.hpp"
#include "azq/search/ply.hpp"

namespace azq {

template <Game G>
class InfosetSearch : public PlySearch<G, InfosetTree<G>> {
    using TreeT = InfosetTree<G>;
    using Base = PlySearch<G, TreeT>;
    using Base::context_;
    using Base::cursor_;
    using Base::drop_path;
    using Base::exact_;
    using Base::key_;
    using Base::path_;
    using Base::path_start_;
    using Base::pending_;
    using Base::simulations_;
    using Base::tree_;

  public:
    using State = typename G::State;

    InfosetSearch(const SearchContext<G>& context, const Room& room) : Base(context) { tree_.attach(room.block, context.node_capacity()); }

    static std::size_t capacity_lines(int node_capacity) { return (TreeT::memory_bytes(node_capacity) + kLine - 1) / kLine; }
    static std::size_t usual_lines(int node_capacity) { return capacity_lines(node_capacity); }

    const State& pending_state(int which) const { return pending_states_[static_cast<std::size_t>(which)]; }

    /// Starts the search of a position where a player is to move.
    void begin(const State& state, const PlyKey& key) {
        Base::restart(key);
        forget_pending();
        arriving_ = false;
        tree_.reset();
        root_state_ = state;
        std::uint16_t actions[TreeT::kMaxStride] = {};
        const int count = context_->rules.legal(state, actions);
        tree_.create(context_->rules.actor(state), actions, count, {kNoChild, 0, 0});
    }

    /// As TreeSearch::advance.
    template <class Emit>
    Progress advance(Emit&& emit) {
        if (arriving_) return arrive(emit);
        if (cursor_ != kNoChild) return descend();
        if (tree_.root().status == NodeStatus::kFresh) {
            state_ = root_state_;
            return hand_out(TreeT::kRoot, nullptr, emit);
        }
        return Base::stand_at_root();
    }

    /// Gives pending leaf number `which` its evaluation: logits of all actions; one value for the player to move, or one a seat
    /// from his on.
    void apply(int which, const Half* logits, const Half* values) {
        const std::int32_t leaf = pending_[static_cast<std::size_t>(which)];
        InfosetNode& node = tree_.node(leaf);
        float of_player[G::kNumPlayers];
        read_values(values, node.actor, of_player);
        if (node.visits == 0) {
            Base::expand(leaf, logits, of_player[node.actor]);
            node.mean = node.raw_value;
            node.visits = 1;
        }
        node.status = NodeStatus::kExpanded;
        if (leaf == TreeT::kRoot) return end_root(of_player);
        if constexpr (HasHidden<G>) {
            if (node.actor != tree_.root().actor && new_nodes_ < kMostNewNodes<G>) return go_on(leaf);
            replace_by_own_views(node.actor, of_player);
        }
        const std::size_t first = path_starts_[static_cast<std::size_t>(which)];
        const std::size_t last = which + 1 < this->pending() ? path_starts_[static_cast<std::size_t>(which) + 1] : path_.size();
        add_in_flight(first, last, 0xffff);  // minus one, modulo 2^16
        back_up(first, last - 1, of_player);
        Base::settle(which, leaf);
        if (pending_.empty()) forget_pending();
    }

    Decision<G> decide() const {
        Decision<G> decision = Base::decide();
        const int mover = tree_.root().actor;
        for (int seat = 1; seat < kValueSize<G>; ++seat) decision.others[seat] = root_means_[(mover + seat) % G::kNumPlayers];
        return decision;
    }

  private:
    /// From cursor_ through chance and whatever leaves no choice to the next decision. At the root the simulation draws its hands.
    /// The decision's node is looked up in the next step: by then its place in the table is here.
    Progress descend() {
        if (tree_.node(cursor_).status == NodeStatus::kPending) return drop_path(Progress::kWaiting);
        const int edge = choose_edge();
        if (cursor_ == TreeT::kRoot) begin_simulation(edge);
        path_.push_back(tree_.step(cursor_, edge));
        actions_[0] = tree_.edges(cursor_).action[edge];
        num_actions_ = 1;
        while (num_actions_ == 1) {
            move(actions_[0]);
            if (context_->rules.actor(state_) == kTerminalPlayer) return end_exactly();
            num_actions_ = context_->rules.legal(state_, actions_);
        }
        name_ = told_apart();
        tree_.prefetch_key(name_);
        arriving_ = true;
        return Progress::kMoving;
    }

    template <class Emit>
    Progress arrive(Emit&& emit) {
        arriving_ = false;
        const int actor = context_->rules.actor(state_);
        const std::uint8_t* view = HasHidden<G> && context_->config.determinizations == 0 ? view_ : nullptr;
        std::int32_t& found = tree_.at(name_);
        if (found == kNoChild) {
            found = tree_.create(actor, actions_, num_actions_, path_.back());
            ++new_nodes_;
            return hand_out(found, view, emit);
        }
        if (new_nodes_ >= G::kNumPlayers && actor == tree_.root().actor) return hand_out(found, view, emit);  // long enough: judged anew
        tree_.prefetch(found);
        cursor_ = found;
        return Progress::kMoving;
    }

    /// Another player's node that was evaluated in this very simulation is left by its priors, not by the tie of its first visits.
    int choose_edge() {
        if constexpr (HasHidden<G>) {
            if (tree_.node(cursor_).actor != tree_.root().actor) {
                const float target = chance_.uniform();  // drawn in any case, so that the simulations' numbers stay aligned
                if (tree_.node(cursor_).visits == 1) return draw_prior(tree_.edges(cursor_), target);
            }
        }
        return Base::select_edge(cursor_);
    }

    static int draw_prior(const Edges& edges, float target) {
        float passed = 0.0f;
        for (int i = 0; i < edges.count; ++i) {
            passed += edges.prior[i];
            if (target < passed) return i;
        }
        return edges.count - 1;
    }

    /// Draws the world, the same at the k-th visit of every root action.
    void begin_simulation(int root_edge) {
        const Edges edges = tree_.edges(TreeT::kRoot);
        const auto visit = static_cast<std::uint32_t>(edges.visits[root_edge] + edges.in_flight[root_edge]);
        const auto worlds = static_cast<std::uint32_t>(context_->config.determinizations);
        world_ = worlds == 0 ? visit : visit % worlds;
        way_ = 0;
        new_nodes_ = 0;
        views_ = 0;
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

    /// Plays an action and lets chance act; `way_` becomes the hash of all actions, and of what chance did where everybody sees it.
    void move(int action) {
        context_->rules.apply(state_, action);
        way_ = mix(way_ + static_cast<std::uint64_t>(action) + 1);
        if constexpr (HasChance<G>) {
            while (context_->rules.actor(state_) == kChancePlayer) {
                const int outcome = pick_outcome(context_->rules, state_, chance_.uniform());
                context_->rules.apply(state_, outcome);
                const bool seen = !HasHidden<G> || context_->config.determinizations > 0;
                if (seen) way_ = mix(way_ + static_cast<std::uint64_t>(outcome) + 1);
            }
        }
    }

    /// The key of the node at hand: without secrets the way itself; else who cannot tell two worlds apart is in one node.
    std::uint64_t told_apart() {
        if constexpr (!HasHidden<G>) return way_;
        if (context_->config.determinizations > 0) return mix(way_ ^ (std::uint64_t{world_} + 1));
        context_->rules.observe(state_, context_->rules.actor(state_), view_);
        std::uint64_t sum = 0;  // of words each scrambled by itself and with its place, so that none waits for another
        for (std::size_t at = 0; at < kPackedSize<G>; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, view_ + at, kPackedSize<G> - at < 8 ? kPackedSize<G> - at : 8);
            sum += mix((word ^ way_) + at);
        }
        return mix(sum);
    }

    /// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
    static std::uint64_t mix(std::uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return (x ^ (x >> 31)) + 0x9e3779b97f4a7c15u;
    }

    template <class Emit>
    Progress hand_out(std::int32_t leaf, const std::uint8_t* view, Emit&& emit) {
        emit(static_cast<const State&>(state_), view);
        pending_states_.push_back(state_);
        path_starts_.push_back(path_start_);
        const Progress progress = Base::await(leaf);
        if (leaf != TreeT::kRoot) add_in_flight(path_start_, path_.size(), 1);
        return progress;
    }

    void end_root(const float* of_player) {
        for (int player = 0; player < G::kNumPlayers; ++player) root_means_[player] = of_player[player];
        Base::settle(0, TreeT::kRoot);
        forget_pending();
    }

    /// The simulation under way leaves another player's leaf, which has just been evaluated.
    void go_on(std::int32_t leaf) {
        const InfosetNode& node = tree_.node(leaf);
        own_view_[node.actor] = node.raw_value;
        views_ |= 1u << node.actor;
        pending_.clear();
        forget_pending();
        path_.pop_back();
        cursor_ = leaf;
    }

    void replace_by_own_views(int evaluator, float* of_player) const {
        for (int player = 0; player < G::kNumPlayers; ++player) {
            if (player != evaluator && (views_ >> player & 1u) != 0) of_player[player] = own_view_[player];
        }
    }

    Progress end_exactly() {
        float of_player[G::kNumPlayers];
        for (int player = 0; player < G::kNumPlayers; ++player) of_player[player] = context_->rules.returns(state_, player);
        back_up(path_start_, path_.size(), of_player);
        ++simulations_;
        ++exact_;
        return drop_path(Progress::kMoving);
    }

    static void read_values(const Half* values, int actor, float* of_player) {
        for (int player = 0; player < G::kNumPlayers; ++player) {
            const int seat = (player - actor + G::kNumPlayers) % G::kNumPlayers;
            const float value = clamp(to_float(values[kValueSize<G> == 1 ? 0 : seat]), -1.0f, 1.0f);
            of_player[player] = kValueSize<G> == 1 && seat > 0 ? -value : value;
        }
    }

    /// Counts an unevaluated leaf along its path. With one leaf at a time nothing is selected while it is out, so nobody asks.
    void add_in_flight(std::size_t first, std::size_t last, std::uint16_t amount) {
        if (context_->config.leaves_per_step == 1) return;
        for (std::size_t at = first; at < last; ++at) {
            InfosetNode& node = tree_.node(path_[at].node);
            node.in_flight = static_cast<std::uint16_t>(node.in_flight + amount);
            if (at + 1 == last) return;  // the leaf itself
            std::uint16_t& edge = tree_.edges(path_[at].node).in_flight[path_[at].edge];
            edge = static_cast<std::uint16_t>(edge + amount);
        }
    }

    /// Back up: every player's value to the nodes where he acts, along a path from the root.
    void back_up(std::size_t first, std::size_t last, const float* of_player) {
        for (std::size_t at = first; at < last; ++at) {
            InfosetNode& node = tree_.node(path_[at].node);
            const float value = of_player[node.actor];
            node.visits += 1;
            node.mean += (value - node.mean) / static_cast<float>(node.visits);
            const Edges edges = tree_.edges(path_[at].node);
            const int edge = path_[at].edge;
            edges.visits[edge] += 1;
            edges.q[edge] += (value - edges.q[edge]) / static_cast<float>(edges.visits[edge]);
        }
        const auto visits = static_cast<float>(tree_.root().visits);
        for (int player = 0; player < G::kNumPlayers; ++player) {
            root_means_[player] += (of_player[player] - root_means_[player]) / visits;
        }
    }

    void forget_pending() {
        pending_states_.clear();
        path_starts_.clear();
    }

    State root_state_{};
    std::vector<State> pending_states_;
    std::vector<std::size_t> path_starts_;  ///< Of the pending leaves' paths in path_.
    float root_means_[G::kNumPlayers] = {};  ///< Every seat's, the root's own evaluation included.

    // The simulation under way; a game with hidden hands has one at a time.
    State state_{};
    std::uint32_t world_ = 0;  ///< Its hidden hands, by number.
    std::uint64_t way_ = 0;
    bool arriving_ = false;    ///< At a decision, whose actions and name these are.
    int num_actions_ = 0;
    std::uint16_t actions_[TreeT::kMaxStride] = {};
    std::uint64_t name_ = 0;
    std::uint8_t view_[HasHidden<G> ? kPackedSize<G> : 1];  ///< What the player to move observes there.
    Rng chance_{0, 0, 0, Purpose::kSample};
    int new_nodes_ = 0;
    unsigned views_ = 0;  ///< Bits of the players with an entry in own_view_.
    float own_view_[G::kNumPlayers] = {};
};

}  // namespace azq
