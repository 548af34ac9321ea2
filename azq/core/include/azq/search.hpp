/// One game with its search tree: simulations (select, expand, back up) and the plies they lead to.
///
/// A simulation is one select-expand-backup. It ends in a leaf that waits for its evaluation, or, with no evaluation, in a
/// terminal or solved node. The root's own evaluation is not a simulation.
///
/// Budget of a ply. PUCT: `num_simulations` is the number of simulations through the root, kept ones included. Gumbel:
/// `num_simulations` new ones, since sequential halving is defined on them; visits kept with a subtree count in q, in the
/// interior and in sigma's max N, not in the schedule. A ply ends early when its root is solved.
///
/// Subtree reuse keeps at most num_simulations nodes, the oldest first, so a tree never holds more than
/// 2 * num_simulations + 2 nodes.
#pragma once

#include "azq/gumbel.hpp"
#include "azq/proof.hpp"
#include "azq/puct.hpp"
#include "azq/record.hpp"

namespace azq {

/// What all games of one search share.
template <Game G>
struct SearchContext {
    SearchContext(const G& game, const SearchConfig& settings, std::uint64_t run_seed, bool plays)
        : rules(game), config(settings), seed(run_seed), autoplay(plays),
          schedule(most_candidates(settings), settings.num_simulations) {}

    int node_capacity() const { return 2 * config.num_simulations + 2; }

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

enum class SlotStatus : std::uint8_t { kEmpty, kBusy, kIdle, kFinished };

template <Game G>
class GameSearch {
  public:
    using State = typename G::State;
    using NodeT = Node<State>;

    GameSearch(const SearchContext<G>& context, std::byte* memory) : context_(&context) {
        tree_.attach(memory, context.node_capacity());
    }

    SlotStatus status() const { return status_; }
    const GameRecord& record() const { return record_; }
    const State& state() const { return state_; }
    const Tree<G>& tree() const { return tree_; }
    bool terminal() const { return context_->rules.actor(state_) == kTerminalPlayer; }
    int pending() const { return static_cast<int>(pending_.size()); }
    std::uint64_t simulations() const { return total_simulations_; }
    std::uint64_t evaluations() const { return total_evaluations_; }
    std::uint64_t plies() const { return total_plies_; }

    /// Whether the record grew since this was last asked.
    bool take_changed() {
        const bool changed = changed_;
        changed_ = false;
        return changed;
    }

    void clear() {
        status_ = SlotStatus::kEmpty;
        changed_ = false;
        pending_.clear();
    }

    /// Takes a game over: replays the record's actions, which the caller found legal, and goes on from there.
    void start(GameRecord record) {
        clear();
        record_ = std::move(record);
        version_ = record_.weight_versions.empty() ? 0 : record_.weight_versions.back();
        state_ = context_->rules.initial();
        for (const std::uint16_t action : record_.actions) context_->rules.apply(state_, action);
        begin_ply(kNoChild, nullptr);
    }

    /// Advances to the next leaves: calls emit(state) for each, at most leaves_per_step, and plays spent plies on the way.
    template <class Emit>
    int collect(std::int32_t* remap, Emit&& emit) {
        int leaves = 0;
        while (status_ == SlotStatus::kBusy && leaves < context_->config.leaves_per_step) {
            if (tree_.root().status == NodeStatus::kPending) break;
            std::int32_t leaf = Tree<G>::kRoot;
            if (tree_.root().status == NodeStatus::kExpanded) {
                if (!prepared_) prepare_root();
                if (spent()) {
                    if (!pending_.empty()) break;
                    end_ply(remap);
                    continue;
                }
                leaf = select();
                if (leaf == kCollision) break;
                if (leaf == kEndedEarly) continue;
            }
            mark_pending(leaf);
            emit(static_cast<const State&>(tree_.node(leaf).state));
            ++leaves;
        }
        return leaves;
    }

    /// Gives pending leaf number `which` its evaluation: logits of all actions, value for the leaf's player to move.
    void apply(int which, const Half* logits, Half value, std::uint32_t weight_version) {
        const std::int32_t leaf = pending_[static_cast<std::size_t>(which)];
        add_in_flight(leaf, 0xffff);  // minus one, modulo 2^16
        version_ = weight_version;
        NodeT& node = tree_.node(leaf);
        const Edges edges = tree_.edges(node);
        for (int i = 0; i < edges.count; ++i) edges.logit[i] = clamp(to_float(logits[edges.action[i]]), -kMaxLogit, kMaxLogit);
        expand(node, clamp(to_float(value), -1.0f, 1.0f));
        back_up(leaf, node.raw_value, false);
        if (leaf != Tree<G>::kRoot) count_simulation();  // the root's own evaluation is not a simulation
        if (which + 1 == pending()) pending_.clear();
    }

    /// Searches with prior logits 0 and value 0 until `quota` simulations are done; a finished game starts anew under uid + stride.
    /// Returns the simulations done, which leaves_per_step may carry past the quota.
    std::uint64_t run_uniform(std::uint64_t quota, std::uint64_t stride, std::int32_t* remap) {
        static constexpr Half kZeros[G::kNumActions] = {};
        const std::uint64_t begin = total_simulations_;
        const std::uint64_t end = begin + quota;
        while (total_simulations_ < end) {
            if (status_ != SlotStatus::kBusy) {
                GameRecord next;
                next.uid = record_.uid + stride;
                start(std::move(next));
            }
            const int leaves = collect(remap, [](const State&) {});
            for (int which = 0; which < leaves; ++which) apply(which, kZeros, Half{0}, 0);
        }
        return total_simulations_ - begin;
    }

    /// The spent search's answer; only while kIdle.
    Decision<G> decide() const {
        const SearchConfig& config = context_->config;
        const Rng rng(context_->seed, record_.uid, ply(), Purpose::kTemperature);
        if (config.algorithm == Algorithm::kGumbel) return decide_gumbel(tree_, config, gumbel_, rng);
        const bool draw = static_cast<std::int32_t>(ply()) < config.temperature_plies && config.temperature > 0.0f;
        return decide_puct(tree_, config, draw, rng);
    }

    /// Plays a legal action, with the search's targets where its budget is spent, and searches on.
    void play(int action, std::int32_t* remap) {
        if (status_ == SlotStatus::kIdle) {
            play_with_targets(decide(), action, remap);
        } else {
            play_without_targets(action, remap);
        }
    }

  private:
    static constexpr std::int32_t kCollision = -2;
    static constexpr std::int32_t kEndedEarly = -3;

    std::uint32_t ply() const { return static_cast<std::uint32_t>(record_.plies()); }

    bool spent() const {
        const NodeT& root = tree_.root();
        if (root.solved()) return true;
        const bool gumbel = context_->config.algorithm == Algorithm::kGumbel;
        const std::int32_t done = gumbel ? ply_simulations_ : root.visits - 1;
        return done + static_cast<std::int32_t>(root.in_flight) >= context_->config.num_simulations;
    }

    void prepare_root() {
        const SearchConfig& config = context_->config;
        if (config.algorithm == Algorithm::kGumbel) {
            prepare_gumbel(tree_, config, Rng(context_->seed, record_.uid, ply(), Purpose::kGumbel), gumbel_);
        } else {
            add_dirichlet_noise(tree_, config, Rng(context_->seed, record_.uid, ply(), Purpose::kDirichlet));
        }
        prepared_ = true;
    }

    int select_edge(std::int32_t index, const NodeT& node, const Edges& edges) const {
        const SearchConfig& config = context_->config;
        float scores[Tree<G>::kMaxStride];
        if (config.algorithm == Algorithm::kPuct) return select_puct(node, edges, config, scores);
        if (index == Tree<G>::kRoot) {
            return select_gumbel_root(tree_, config, context_->schedule, gumbel_, ply_simulations_ + node.in_flight);
        }
        float completed[Tree<G>::kMaxStride];
        return select_gumbel(node, edges, config, completed, scores);
    }

    /// Descends from the root. Returns a new leaf; or kEndedEarly where the simulation met an exact value and is complete;
    /// or kCollision where it ran into a leaf that is still in flight and nothing changed.
    std::int32_t select() {
        std::int32_t index = Tree<G>::kRoot;
        for (;;) {
            const NodeT& node = tree_.node(index);
            const Edges edges = tree_.edges(node);
            const int edge = select_edge(index, node, edges);
            std::int32_t child = edges.child[edge];
            const bool created = child == kNoChild;
            if (created) child = tree_.create_child(context_->rules, index, edge);
            child &= ~kSolvedChild;
            const NodeT& next = tree_.node(child);
            if (next.solved()) {
                back_up(child, next.lower, true);
                count_simulation();
                return kEndedEarly;
            }
            if (created) return child;
            if (next.status == NodeStatus::kPending) return kCollision;
            index = child;
        }
    }

    void mark_pending(std::int32_t leaf) {
        tree_.node(leaf).status = NodeStatus::kPending;
        pending_.push_back(leaf);
        ++total_evaluations_;
        add_in_flight(leaf, 1);
    }

    /// Counts an unevaluated leaf along its path. With one leaf at a time nothing is selected while it is out, so nobody asks.
    void add_in_flight(std::int32_t leaf, std::uint16_t amount) {
        if (context_->config.leaves_per_step == 1 || leaf == Tree<G>::kRoot) return;
        std::int32_t index = leaf;
        for (;;) {
            NodeT& node = tree_.node(index);
            node.in_flight = static_cast<std::uint16_t>(node.in_flight + amount);
            if (index == Tree<G>::kRoot) return;
            std::uint16_t& edge = tree_.edges(tree_.node(node.parent)).in_flight[node.parent_edge];
            edge = static_cast<std::uint16_t>(edge + amount);
            index = node.parent;
        }
    }

    /// Turns logits into priors (softmax over the legal actions) and takes the value for the actor.
    void expand(NodeT& node, float value) {
        const Edges edges = tree_.edges(node);
        float largest = kPadLogit;
        for (int i = 0; i < edges.count; ++i) largest = edges.logit[i] > largest ? edges.logit[i] : largest;
        float sums[4] = {};
        for (int i = 0; i < edges.stride; ++i) edges.prior[i] = exp32(edges.logit[i] - largest);
        for (int i = 0; i < edges.stride; i += 4) {
            for (int lane = 0; lane < 4; ++lane) sums[lane] += edges.prior[i + lane];
        }
        const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int i = 0; i < edges.count; ++i) {
            const float prior = edges.prior[i] / sum;
            edges.prior[i] = prior < kMinPrior ? kMinPrior : prior;
        }
        node.raw_value = sign_of(node.actor) * value;
        node.status = NodeStatus::kExpanded;
    }

    /// Adds a value (player 0's) to every node and edge from `index` to the root. On the way a value is cut to what is proven
    /// of each node it passes, and new proofs are propagated: `proven` says that `index` itself is one.
    void back_up(std::int32_t index, float value, bool proven) {
        bool narrower = proven;
        for (;;) {
            NodeT& node = tree_.node(index);
            value = clamp(value, node.lower, node.upper);
            node.visits += 1;
            node.mean += (value - node.mean) / static_cast<float>(node.visits);
            if (index == Tree<G>::kRoot) break;
            NodeT& parent = tree_.node(node.parent);
            const Edges edges = tree_.edges(parent);
            const int edge = node.parent_edge;
            const std::int32_t visits = edges.visits[edge] + 1;
            edges.visits[edge] = visits;
            const float q = edges.q[edge] + (value - edges.q[edge]) / static_cast<float>(visits);
            edges.q[edge] = clamp(q, node.lower, node.upper);
            if (narrower) {
                if (node.solved()) {
                    edges.child[edge] |= kSolvedChild;
                    if (edges.lost(edge, sign_of(parent.actor))) parent.has_lost_child = true;
                }
                narrower = tighten(tree_, parent);
            }
            index = node.parent;
        }
    }

    void count_simulation() {
        ++ply_simulations_;
        ++total_simulations_;
    }

    void end_ply(std::int32_t* remap) {
        if (!context_->autoplay) {
            status_ = SlotStatus::kIdle;
            return;
        }
        const Decision<G> decision = decide();
        play_with_targets(decision, decision.action, remap);
    }

    void play_with_targets(const Decision<G>& decision, int action, std::int32_t* remap) {
        Half policy[G::kNumActions];
        for (int i = 0; i < G::kNumActions; ++i) policy[i] = to_half(decision.policy[i]);
        const int spent = ply_simulations_ < 1 ? 1 : (ply_simulations_ > 65535 ? 65535 : ply_simulations_);
        record_.append(static_cast<std::uint16_t>(action), policy, G::kNumActions, decision.root_value, static_cast<std::uint16_t>(spent),
                       version_);
        advance(action, remap);
    }

    void play_without_targets(int action, std::int32_t* remap) {
        const Half zeros[G::kNumActions] = {};
        record_.append(static_cast<std::uint16_t>(action), zeros, G::kNumActions, 0.0f, 0, version_);
        advance(action, remap);
    }

    void advance(int action, std::int32_t* remap) {
        std::int32_t child = kNoChild;
        if (context_->config.reuse_subtree) {
            const Edges edges = tree_.edges(tree_.root());
            for (int i = 0; i < edges.count; ++i) {
                if (edges.action[i] == action) child = edges.child[i];
            }
        }
        context_->rules.apply(state_, action);
        changed_ = true;
        ++total_plies_;
        begin_ply(child, remap);
    }

    /// Sets up the search of the position in state_, from a child of the old root where one is kept.
    void begin_ply(std::int32_t child, std::int32_t* remap) {
        prepared_ = false;
        ply_simulations_ = 0;
        if (terminal()) {
            status_ = SlotStatus::kFinished;
            return;
        }
        status_ = SlotStatus::kBusy;
        if (context_->autoplay && static_cast<std::int32_t>(ply()) < context_->config.random_opening_plies) {
            play_random(remap);
            return;
        }
        if (child == kNoChild) {
            tree_.reset(context_->rules, state_);
        } else {
            tree_.keep_subtree(child & ~kSolvedChild, context_->config.num_simulations, remap);
            forget_lost_proof(tree_);
        }
    }

    void play_random(std::int32_t* remap) {
        std::uint16_t actions[G::kMaxLegal];
        const int count = context_->rules.legal(state_, actions);
        Rng rng(context_->seed, record_.uid, ply(), Purpose::kOpening);
        const int action = actions[rng.below(count)];
        const Half zeros[G::kNumActions] = {};
        record_.append(static_cast<std::uint16_t>(action), zeros, G::kNumActions, 0.0f, 0, version_);
        context_->rules.apply(state_, action);
        changed_ = true;
        ++total_plies_;
        begin_ply(kNoChild, remap);
    }

    const SearchContext<G>* context_;
    Tree<G> tree_;
    State state_{};
    GameRecord record_;
    GumbelRoot<G> gumbel_;
    std::vector<std::int32_t> pending_;   ///< Leaves handed out and not yet evaluated, in order.
    std::int32_t ply_simulations_ = 0;    ///< Since this ply began.
    std::uint32_t version_ = 0;
    std::uint64_t total_simulations_ = 0;
    std::uint64_t total_evaluations_ = 0;
    std::uint64_t total_plies_ = 0;
    SlotStatus status_ = SlotStatus::kEmpty;
    bool prepared_ = false;
    bool changed_ = false;
};

}  // namespace azq
