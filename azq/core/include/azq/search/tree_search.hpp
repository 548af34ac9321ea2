/// The search of one ply without chance or secrets: simulations, each select, expand, back up.
///
/// A simulation ends in a leaf that waits for its evaluation, or, with no evaluation, in a terminal node or (directly below the
/// root) a solved one. The search ends early when its root is solved.
///
/// With `batch_root` those children of the root that the ply will visit (Gumbel: its candidates; PUCT: all) are asked for in one step
/// before the first simulation. Nothing of them counts until a simulation comes to one: then it ends there as if the answer had just
/// come. So, with one leaf at a time, the search is the same bit for bit, in fewer round trips.
///
/// With `decisive_moves` a new position whose player to move has an action that wins at once is proven won and asks for no evaluation,
/// and such an action of the root is visited before anything else, however little its prior (Teytaud and Teytaud, "On the huge benefit of
/// decisive moves in Monte-Carlo Tree Search algorithms", CIG 2010). A loss that the opponent's next move brings is seen at once.
#pragma once

#include <utility>

#include "azq/search/ply.hpp"
#include "azq/search/proof.hpp"

namespace azq {

template <Game G>
class TreeSearch : public PlySearch<G, Tree<G>> {
    using Base = PlySearch<G, Tree<G>>;
    using Base::await;
    using Base::context_;
    using Base::cursor_;
    using Base::drop_path;
    using Base::exact_;
    using Base::path_;
    using Base::pending_;
    using Base::plan_;
    using Base::simulations_;
    using Base::tree_;

  public:
    using State = typename G::State;
    using NodeT = Node<State>;

    TreeSearch(const SearchContext<G>& context, const Room& room) : Base(context) { tree_.attach(room); }

    /// Lines that a tree of so many nodes takes, and as many as do for most: few positions have the most legal actions that
    /// a game knows, and few trees the most nodes.
    static std::size_t capacity_lines(int node_capacity) { return Tree<G>::capacity_lines(node_capacity); }
    static std::size_t usual_lines(int node_capacity) { return capacity_lines(node_capacity) / 3 + Tree<G>::lines(G::kMaxLegal); }

    const State& pending_state(int which) const { return tree_.node(pending_[static_cast<std::size_t>(which)]).state; }

    /// Starts the search of a position.
    void begin(const State& state, const PlyKey& key) {
        restart(key);
        tree_.reset(context_->rules, state);
    }

    /// Starts the search of a child of the old root, with its subtree.
    void begin_at(std::int32_t child, const PlyKey& key, std::int32_t* remap) {
        restart(key);
        tree_.keep_subtree(child & ~kSolvedChild, context_->config.num_simulations, remap);
        forget_lost_proof(tree_);
    }

    /// The root's child by an action, or kNoChild; one that no simulation came to is none, nor one proven without an evaluation.
    std::int32_t child_of(int action) const {
        const Edges edges = tree_.edges(Tree<G>::kRoot);
        for (int i = 0; i < edges.count; ++i) {
            if (edges.action[i] != action || edges.child[i] == kNoChild) continue;
            const bool kept = edges.visits[i] > 0 && tree_.node(edges.child[i] & ~kSolvedChild).status != NodeStatus::kFresh;
            return kept ? edges.child[i] : kNoChild;
        }
        return kNoChild;
    }

    /// One small step, at most one level down the tree; calls emit(state, view) where it meets a new leaf, the view being
    /// its packed observation where that is at hand and else null. Small, so that a caller with many trees can let their cache misses
    /// overlap by stepping them in turn.
    template <class Emit>
    Progress advance(Emit&& emit) {
        if (cursor_ != kNoChild) return descend(emit);
        if (early_) return ask_early(emit);
        if (tree_.root().status == NodeStatus::kFresh) return hand_out(Tree<G>::kRoot, emit);
        const Progress progress = Base::stand_at_root();
        if (progress != Progress::kMoving) return progress;
        if (context_->config.decisive_moves && !std::exchange(looked_, true) && win_at_root()) return progress;
        if (asks_early()) cursor_ = kNoChild;
        return progress;
    }

    /// Whether further leaves of this step are asked for whatever becomes of the newest one.
    bool early() const { return early_; }

    /// Gives pending leaf number `which` its evaluation: logits of all actions, value for the leaf's player to move.
    void apply(int which, const Half* logits, const Half* values) {
        const std::int32_t leaf = pending_[static_cast<std::size_t>(which)];
        if (early_) {
            take(leaf, logits, values);
            if (which + 1 == Base::pending()) end_early();
            return;
        }
        add_in_flight(leaf, 0xffff);  // minus one, modulo 2^16
        take(leaf, logits, values);
        back_up(leaf, tree_.node(leaf).raw_value, false);
        Base::settle(which, leaf);
    }

    /// Gives the leaf that was handed out last its evaluation at once, while earlier ones wait.
    void apply_newest(const Half* logits, const Half* values) {
        if (!early_) return apply(Base::pending() - 1, logits, values);
        take(pending_.back(), logits, values);
        pending_.pop_back();
        path_.pop_back();
    }

  private:
    void restart(const PlyKey& key) {
        Base::restart(key);
        looked_ = early_ = asked_ = false;
        next_edge_ = 0;
    }

    void take(std::int32_t leaf, const Half* logits, const Half* values) {
        Base::expand(leaf, logits, tree_.node(leaf).sign() * clamp(to_float(values[0]), -1.0f, 1.0f));
    }

    /// Whether children are asked for now, once in a ply; not where there are more of them than simulations left.
    bool asks_early() {
        if (!context_->config.batch_root || std::exchange(asked_, true)) return false;
        const Edges edges = tree_.edges(Tree<G>::kRoot);
        std::int32_t wanted = 0;
        for (int i = 0; i < edges.count; ++i) wanted += edges.child[i] == kNoChild && will_visit(i);
        return early_ = wanted > 0 && wanted <= Base::left();
    }

    bool will_visit(int edge) const {
        return with_algorithm(context_->config, [&](auto algorithm) { return algorithm.will_visit(plan_, edge); });
    }

    /// Of these actions the first that ends the game with a win for `actor`, or -1.
    int decisive(const State& position, const std::uint16_t* actions, int count, int actor) const {
        for (int i = 0; i < count; ++i) {
            State after = position;
            context_->rules.apply(after, actions[i]);
            if (context_->rules.actor(after) == kTerminalPlayer && context_->rules.returns(after, actor) >= 1.0f) return i;
        }
        return -1;
    }

    /// Visits an action of the root that wins at once, which solves the root; false where there is none.
    bool win_at_root() {
        const Edges edges = tree_.edges(Tree<G>::kRoot);
        const int edge = decisive(tree_.root().state, edges.action, edges.count, tree_.root().actor);
        if (edge < 0) return false;
        end_exactly(tree_.create_child(context_->rules, Tree<G>::kRoot, edge));
        return true;
    }

    /// Creates a child, whose value is exact where the game ends there or, with `decisive_moves`, at once after.
    std::int32_t create_child(std::int32_t parent, int edge) {
        const std::int32_t child = tree_.create_child(context_->rules, parent, edge);
        NodeT& node = tree_.node(child);
        if (!context_->config.decisive_moves || node.solved()) return child;
        const Edges edges = tree_.edges(child);
        if (decisive(node.state, edges.action, edges.count, node.actor) >= 0) node.lower = node.upper = node.sign();
        return child;
    }

    /// Whether create_child would find an exact value.
    bool ends_game(int action) const {
        State state = tree_.root().state;
        context_->rules.apply(state, action);
        const int actor = context_->rules.actor(state);
        if (actor == kTerminalPlayer || !context_->config.decisive_moves) return actor == kTerminalPlayer;
        std::uint16_t actions[G::kMaxLegal];
        return decisive(state, actions, context_->rules.legal(state, actions), actor) >= 0;
    }

    /// Hands out the next child; one that ends the game is left to its first visit, whose proof changes the search.
    template <class Emit>
    Progress ask_early(Emit&& emit) {
        const Edges edges = tree_.edges(Tree<G>::kRoot);
        for (; next_edge_ < edges.count; ++next_edge_) {
            if (edges.child[next_edge_] != kNoChild || !will_visit(next_edge_) || ends_game(edges.action[next_edge_])) continue;
            const std::int32_t child = tree_.create_child(context_->rules, Tree<G>::kRoot, next_edge_++);
            emit(static_cast<const State&>(tree_.node(child).state), nullptr);
            await(child);
            return Progress::kMoving;
        }
        if (!pending_.empty()) return Progress::kWaiting;
        end_early();
        return Progress::kMoving;
    }

    void end_early() {
        pending_.clear();
        path_.clear();
        early_ = false;
    }

    /// Select: one level down from cursor_. A simulation that meets an exact value is complete; one that runs into a leaf still
    /// in flight is dropped, having changed nothing, and the tree waits.
    template <class Emit>
    Progress descend(Emit&& emit) {
        if (tree_.node(cursor_).status == NodeStatus::kPending) return drop_path(Progress::kWaiting);
        const int edge = Base::select_edge(cursor_);
        path_.push_back(tree_.step(cursor_, edge));
        const std::int32_t child = tree_.edges(cursor_).child[edge];
        if (child >= kSolvedChild) return end_exactly(child & ~kSolvedChild);
        if (child == kNoChild) return visit_new(create_child(cursor_, edge), emit);
        if (cursor_ == Tree<G>::kRoot && asked_ && is_known(child)) return end_known(child);
        tree_.prefetch(child);
        cursor_ = child;
        return Progress::kMoving;
    }

    /// Whether a child was evaluated early and no simulation came to it yet.
    bool is_known(std::int32_t child) const { return tree_.node(child).status == NodeStatus::kExpanded && tree_.node(child).visits == 0; }

    Progress end_known(std::int32_t child) {
        back_up(child, tree_.node(child).raw_value, false);
        ++simulations_;
        return drop_path(Progress::kMoving);
    }

    template <class Emit>
    Progress visit_new(std::int32_t child, Emit&& emit) {
        return tree_.node(child).solved() ? end_exactly(child) : hand_out(child, emit);
    }

    template <class Emit>
    Progress hand_out(std::int32_t leaf, Emit&& emit) {
        emit(static_cast<const State&>(tree_.node(leaf).state), nullptr);
        const Progress progress = await(leaf);
        add_in_flight(leaf, 1);
        return progress;
    }

    Progress end_exactly(std::int32_t index) {
        back_up(index, tree_.node(index).lower, true);
        ++simulations_;
        ++exact_;
        return drop_path(Progress::kMoving);
    }

    /// Counts an unevaluated leaf along its path. With one leaf at a time nothing is selected while it is out, so nobody asks.
    void add_in_flight(std::int32_t leaf, std::uint16_t amount) {
        if (context_->config.leaves_per_step == 1 || leaf == Tree<G>::kRoot) return;
        std::int32_t index = leaf;
        for (;;) {
            NodeT& node = tree_.node(index);
            node.in_flight = static_cast<std::uint16_t>(node.in_flight + amount);
            if (index == Tree<G>::kRoot) return;
            std::uint16_t& edge = tree_.edges(node.parent).in_flight[node.parent_edge];
            edge = static_cast<std::uint16_t>(edge + amount);
            index = node.parent;
        }
    }

    /// Back up: adds a value (player 0's) to every node and edge from `index` to the root. On the way a value is cut to what is
    /// proven of each node it passes, and new proofs are propagated: `proven` says that `index` itself may be one.
    void back_up(std::int32_t index, float value, bool proven) {
        bool narrower = proven;
        for (;;) {
            NodeT& node = tree_.node(index);
            value = clamp(value, node.lower, node.upper);
            node.visits += 1;
            node.mean += (value - node.mean) / static_cast<float>(node.visits);
            if (index == Tree<G>::kRoot) return;
            const Edges edges = tree_.edges(node.parent);
            const int edge = node.parent_edge;
            edges.visits[edge] += 1;
            const float q = edges.q[edge] + (value - edges.q[edge]) / static_cast<float>(edges.visits[edge]);
            edges.q[edge] = clamp(q, node.lower, node.upper);
            if (narrower) narrower = propagate(node, edges);
            index = node.parent;
        }
    }

    /// Tells a node's parent that the node's bounds changed; returns whether the parent's did.
    bool propagate(const NodeT& node, const Edges& edges) {
        if (node.solved()) {
            edges.child[node.parent_edge] |= kSolvedChild;
            tree_.node(node.parent).has_solved_child = true;
        }
        return tighten(tree_, node.parent);
    }

    bool looked_ = false;         ///< For an action of the root that wins at once, in this ply.
    bool asked_ = false;          ///< Children were asked for early in this ply, or found not worth it.
    bool early_ = false;          ///< What is pending are such children.
    std::int32_t next_edge_ = 0;  ///< Of the root: the first that was not looked at for that.
};

}  // namespace azq
