/// The search of one ply: simulations, each select, expand, back up.
///
/// A simulation ends in a leaf that waits for its evaluation, or, with no evaluation, in a terminal node or (directly below the
/// root) a solved one. The root's own evaluation is not a simulation.
///
/// Budget. PUCT: `num_simulations` is the number of simulations through the root, kept ones included. Gumbel: that many new
/// ones, since sequential halving is defined on them; visits kept with a subtree count in q, in the interior and in sigma's
/// max N, not in the schedule. The search ends early when its root is solved.
#pragma once

#include <vector>

#include "azq/gumbel.hpp"
#include "azq/proof.hpp"
#include "azq/puct.hpp"

namespace azq {

/// What all games of one search share.
template <Game G>
struct SearchContext {
    SearchContext(const G& game, const SearchConfig& settings, std::uint64_t run_seed, bool plays)
        : rules(game), config(settings), seed(run_seed), autoplay(plays), schedule(most_candidates(settings), settings.num_simulations) {}

    /// Most nodes of a tree: the root, and one for each simulation through it under PUCT; under Gumbel a kept subtree (trimmed to
    /// num_simulations nodes) and one for each simulation of the ply.
    int node_capacity() const {
        return config.algorithm == Algorithm::kPuct ? config.num_simulations + 1 : 2 * config.num_simulations + 1;
    }

    static int most_candidates(const SearchConfig& settings) {
        if (settings.algorithm == Algorithm::kPuct) return 0;
        return settings.max_considered_actions < G::kMaxLegal ? settings.max_considered_actions : G::kMaxLegal;
    }

    G rules;
    SearchConfig config;
    std::uint64_t seed;
    bool autoplay;
    HalvingSchedule schedule;
};

/// What the random numbers of a ply are keyed by.
struct PlyKey {
    std::uint64_t seed;
    std::uint64_t uid;
    std::uint32_t ply;

    Rng rng(Purpose purpose) const { return Rng(seed, uid, ply, purpose); }
};

enum class Progress : std::uint8_t {
    kMoving,   ///< Ask again.
    kWaiting,  ///< Leaves wait for their evaluation.
    kSpent,    ///< The budget is spent or the root solved: decide.
};

template <Game G>
class TreeSearch {
  public:
    using State = typename G::State;
    using NodeT = Node<State>;

    TreeSearch(const SearchContext<G>& context, std::byte* memory) : context_(&context) { tree_.attach(memory); }

    const Tree<G>& tree() const { return tree_; }
    int pending() const { return static_cast<int>(pending_.size()); }
    int simulations() const { return simulations_; }  ///< In this ply.
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

    /// The root's child by an action, or kNoChild.
    std::int32_t child_of(int action) const {
        const Edges edges = tree_.edges(Tree<G>::kRoot);
        for (int i = 0; i < edges.count; ++i) {
            if (edges.action[i] == action) return edges.child[i];
        }
        return kNoChild;
    }

    /// One small step, at most one level down the tree; calls emit(state) where it meets a new leaf. Small, so that a caller
    /// with many trees can let their cache misses overlap by stepping them in turn.
    template <class Emit>
    Progress advance(Emit&& emit) {
        if (cursor_ != kNoChild) return descend(emit);
        const NodeT& root = tree_.root();
        if (root.status == NodeStatus::kPending || pending() == context_->config.leaves_per_step) return Progress::kWaiting;
        if (root.status == NodeStatus::kFresh) return hand_out(Tree<G>::kRoot, emit);
        if (!prepared_) prepare_root();
        if (spent()) return pending_.empty() ? Progress::kSpent : Progress::kWaiting;
        cursor_ = Tree<G>::kRoot;
        path_start_ = path_.size();
        return Progress::kMoving;
    }

    /// Gives pending leaf number `which` its evaluation: logits of all actions, value for the leaf's player to move.
    void apply(int which, const Half* logits, Half value) {
        const std::int32_t leaf = pending_[static_cast<std::size_t>(which)];
        add_in_flight(leaf, 0xffff);  // minus one, modulo 2^16
        expand(leaf, logits, clamp(to_float(value), -1.0f, 1.0f));
        back_up(leaf, tree_.node(leaf).raw_value, false);
        if (leaf != Tree<G>::kRoot) ++simulations_;
        if (which + 1 < pending()) return;
        pending_.clear();
        path_.clear();
    }

    Decision<G> decide() const {
        const SearchConfig& config = context_->config;
        const Rng rng = key_.rng(Purpose::kTemperature);
        if (config.algorithm == Algorithm::kGumbel) return decide_gumbel(tree_, config, gumbel_, rng);
        const bool draw = static_cast<std::int32_t>(key_.ply) < config.temperature_plies && config.temperature > 0.0f;
        return decide_puct(tree_, config, draw, rng);
    }

    /// Starts fetching what the first step touches.
    void prefetch_root() const { tree_.prefetch(Tree<G>::kRoot); }

    /// Starts fetching what `apply` touches.
    void prefetch_pending() const {
        for (const std::int32_t index : path_) tree_.prefetch(index);
    }

  private:
    void restart(const PlyKey& key) {
        key_ = key;
        cursor_ = kNoChild;
        prepared_ = false;
        simulations_ = 0;
        pending_.clear();
        path_.clear();
    }

    bool spent() const {
        const NodeT& root = tree_.root();
        if (root.solved()) return true;
        const std::int32_t done = context_->config.algorithm == Algorithm::kGumbel ? simulations_ : root.visits - 1;
        return done + static_cast<std::int32_t>(root.in_flight) >= context_->config.num_simulations;
    }

    void prepare_root() {
        if (context_->config.algorithm == Algorithm::kGumbel) {
            prepare_gumbel(tree_, context_->config, key_.rng(Purpose::kGumbel), gumbel_);
        } else {
            add_dirichlet_noise(tree_, context_->config, key_.rng(Purpose::kDirichlet));
        }
        prepared_ = true;
    }

    int select_edge(std::int32_t index) const {
        const SearchConfig& config = context_->config;
        const NodeT& node = tree_.node(index);
        float scores[Tree<G>::kMaxStride];
        if (config.algorithm == Algorithm::kPuct) {
            return select_puct(node, tree_.edges(index), config, index == Tree<G>::kRoot, scores);
        }
        if (index == Tree<G>::kRoot) {
            return select_gumbel_root(tree_, config, context_->schedule, gumbel_, simulations_ + node.in_flight);
        }
        float completed[Tree<G>::kMaxStride];
        return select_gumbel(node, tree_.edges(index), config, completed, scores);
    }

    /// Select: one level down from cursor_. A simulation that meets an exact value is complete; one that runs into a leaf still
    /// in flight is dropped, having changed nothing, and the tree waits.
    template <class Emit>
    Progress descend(Emit&& emit) {
        if (tree_.node(cursor_).status == NodeStatus::kPending) return drop_path(Progress::kWaiting);
        const int edge = select_edge(cursor_);
        path_.push_back(cursor_);
        const std::int32_t child = tree_.edges(cursor_).child[edge];
        if (child >= kSolvedChild) return end_exactly(child & ~kSolvedChild);
        if (child == kNoChild) return visit_new(tree_.create_child(context_->rules, cursor_, edge), emit);
        tree_.prefetch(child);
        cursor_ = child;
        return Progress::kMoving;
    }

    template <class Emit>
    Progress visit_new(std::int32_t child, Emit&& emit) {
        return tree_.node(child).solved() ? end_exactly(child) : hand_out(child, emit);
    }

    Progress end_exactly(std::int32_t index) {
        back_up(index, tree_.node(index).lower, true);
        ++simulations_;
        return drop_path(Progress::kMoving);
    }

    Progress drop_path(Progress progress) {
        path_.resize(path_start_);
        cursor_ = kNoChild;
        return progress;
    }

    template <class Emit>
    Progress hand_out(std::int32_t leaf, Emit&& emit) {
        tree_.node(leaf).status = NodeStatus::kPending;
        emit(static_cast<const State&>(tree_.node(leaf).state));
        pending_.push_back(leaf);
        path_.push_back(leaf);
        add_in_flight(leaf, 1);
        cursor_ = kNoChild;
        return pending() == context_->config.leaves_per_step ? Progress::kWaiting : Progress::kMoving;
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

    /// Expand: turns logits into priors (softmax over the legal actions) and takes the value for the actor.
    void expand(std::int32_t leaf, const Half* logits, float value) {
        const Edges edges = tree_.edges(leaf);
        float largest = kPadLogit;
        for (int i = 0; i < edges.count; ++i) {
            edges.logit[i] = clamp(to_float(logits[edges.action[i]]), -kMaxLogit, kMaxLogit);
            largest = edges.logit[i] > largest ? edges.logit[i] : largest;
        }
        for (int i = 0; i < edges.stride; ++i) edges.prior[i] = exp32(edges.logit[i] - largest);
        float sums[4] = {};
        for (int i = 0; i < edges.stride; i += 4) {
            for (int lane = 0; lane < 4; ++lane) sums[lane] += edges.prior[i + lane];
        }
        const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int i = 0; i < edges.count; ++i) {
            const float prior = edges.prior[i] / sum;
            edges.prior[i] = prior < kMinPrior ? kMinPrior : prior;
        }
        NodeT& node = tree_.node(leaf);
        node.raw_value = sign_of(node.actor) * value;
        node.status = NodeStatus::kExpanded;
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

    const SearchContext<G>* context_;
    Tree<G> tree_;
    PlyKey key_{};
    std::int32_t cursor_ = kNoChild;     ///< Where the simulation under way stands, or kNoChild between two.
    std::int32_t simulations_ = 0;
    bool prepared_ = false;              ///< Noise drawn, candidates fixed.
    std::size_t path_start_ = 0;
    std::vector<std::int32_t> pending_;  ///< Leaves handed out and not yet evaluated, in order.
    std::vector<std::int32_t> path_;     ///< The nodes of their paths, and of the simulation under way.
    GumbelRoot<G> gumbel_;
};

}  // namespace azq
