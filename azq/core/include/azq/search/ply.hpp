/// The search of one ply, as far as it is the same over every kind of tree: budget, root, selection, expansion, decision.
///
/// Budget. PUCT: `num_simulations` is the number of simulations through the root, kept ones included. Gumbel: that many new
/// ones, since sequential halving is defined on them; visits kept with a subtree count in q, in the interior and in sigma's
/// max N, not in the schedule. The root's own evaluation is not a simulation.
#pragma once

#include <vector>

#include "azq/search/gumbel.hpp"
#include "azq/search/puct.hpp"

namespace azq {

/// Calls `what` with the algorithm of these settings: the one place that knows which there are. Each has the functions of `Puct`.
template <class What>
decltype(auto) with_algorithm(const SearchConfig& config, What&& what) {
    if (config.algorithm == Algorithm::kPuct) return what(Puct{});
    return what(Gumbel{});
}

/// Most nodes that a simulation adds. With hidden hands it goes on through other players' new nodes (infoset_search.hpp): once through all
/// players, then on to the root's player, who is never further than two rounds of a card game away.
template <Game G>
inline constexpr int kMostNewNodes = HasHidden<G> ? 3 * G::kNumPlayers : 1;

/// What all games of one search share.
template <Game G>
struct SearchContext {
    SearchContext(const G& game, const SearchConfig& settings, std::uint64_t run_seed, bool plays)
        : rules(game), config(settings), seed(run_seed), autoplay(plays), schedule(most_candidates(settings), settings.num_simulations) {}

    static int most_candidates(const SearchConfig& settings) {
        return with_algorithm(settings, [&](auto algorithm) { return algorithm.most_candidates(settings, G::kMaxLegal); });
    }

    /// Most nodes of a tree; with chance or hidden hands nothing is kept from ply to ply.
    int node_capacity() const {
        if constexpr (kSampled<G>) return kMostNewNodes<G> * config.num_simulations + 1;
        return with_algorithm(config, [&](auto algorithm) { return algorithm.node_capacity(config, G::kMaxLegal); });
    }

    G rules;
    SearchConfig config;
    std::uint64_t seed;
    bool autoplay;
    HalvingSchedule schedule;
};

enum class Progress : std::uint8_t {
    kMoving,   ///< Ask again.
    kWaiting,  ///< Leaves wait for their evaluation.
    kSpent,    ///< The budget is spent or the root solved: decide.
};

template <Game G, class TreeT>
class PlySearch {
  public:
    using State = typename G::State;

    const TreeT& tree() const { return tree_; }
    int pending() const { return static_cast<int>(pending_.size()); }
    int simulations() const { return simulations_; }  ///< In this ply.
    std::uint64_t exact() const { return exact_; }    ///< Simulations so far that ended in an exact value and asked for no evaluation.

    Decision<G> decide() const {
        return with_algorithm(context_->config, [&](auto algorithm) { return algorithm.decide(tree_, context_->config, key_, plan_); });
    }

    /// What is legal at the leaf that was handed out last.
    Edges newest() const { return tree_.edges(pending_.back()); }

    /// Starts fetching what the first step touches, and where the leaf will be.
    void prefetch_root() const {
        tree_.prefetch(TreeT::kRoot);
        tree_.prefetch(tree_.end());
    }

    /// Starts fetching the names of what `prefetch_pending` fetches.
    void prefetch_path() const {
        prefetch_lines(path_.data());
        prefetch_lines(pending_.data());
    }

    /// Starts fetching what `apply` touches.
    void prefetch_pending() const {
        for (const Step step : path_) tree_.prefetch(step);
    }

  protected:
    explicit PlySearch(const SearchContext<G>& context) : context_(&context) {}

    void restart(const PlyKey& key) {
        key_ = key;
        cursor_ = kNoChild;
        prepared_ = false;
        simulations_ = 0;
        pending_.clear();
        path_.clear();
    }

    /// Stands at the root, ready for a simulation, or says why not. A root whose evaluation nobody asked for is left to the caller.
    Progress stand_at_root() {
        const auto& root = tree_.root();
        if (root.status == NodeStatus::kPending || pending() == context_->config.leaves_per_step) return Progress::kWaiting;
        if (root.status == NodeStatus::kFresh) return Progress::kMoving;
        if (!prepared_) prepare_root();
        if (spent()) return pending_.empty() ? Progress::kSpent : Progress::kWaiting;
        cursor_ = TreeT::kRoot;
        path_start_ = path_.size();
        return Progress::kMoving;
    }

    std::int32_t left() const {
        const auto& root = tree_.root();
        const std::int32_t done = with_algorithm(context_->config, [&](auto algorithm) { return algorithm.done(root, simulations_); });
        return context_->config.num_simulations - done - static_cast<std::int32_t>(root.in_flight);
    }

    /// Where only one action is legal and nothing is kept for the next ply, there is nothing to search for.
    bool spent() const {
        const auto& root = tree_.root();
        return root.solved() || (kSampled<G> && root.num_edges == 1) || left() <= 0;
    }

    void prepare_root() {
        with_algorithm(context_->config, [&](auto algorithm) { algorithm.prepare(tree_, context_->config, key_, plan_); });
        prepared_ = true;
    }

    int select_edge(std::int32_t index) const {
        return with_algorithm(context_->config, [&](auto algorithm) {
            return algorithm.select(tree_, index, context_->config, context_->schedule, plan_, simulations_);
        });
    }

    /// Drops the simulation under way, which changed nothing.
    Progress drop_path(Progress progress) {
        path_.resize(path_start_);
        cursor_ = kNoChild;
        return progress;
    }

    /// The simulation under way ends in a leaf that waits for its evaluation.
    Progress await(std::int32_t leaf) {
        tree_.node(leaf).status = NodeStatus::kPending;
        pending_.push_back(leaf);
        path_.push_back(tree_.step(leaf, kNoChild));
        cursor_ = kNoChild;
        return pending() == context_->config.leaves_per_step ? Progress::kWaiting : Progress::kMoving;
    }

    /// The evaluation of pending leaf number `which` was backed up.
    void settle(int which, std::int32_t leaf) {
        if (leaf != TreeT::kRoot) ++simulations_;
        if (which + 1 < pending()) return;
        pending_.clear();
        path_.clear();
    }

    /// Expand: turns logits into priors (softmax over the legal actions) and takes the value, as the tree counts it.
    void expand(std::int32_t leaf, const Half* logits, float value) {
        const Edges edges = tree_.edges(leaf);
        Floats most = in_all(kPadLogit);
        for (int i = 0; i < edges.stride; i += kLanes) {
            const Floats cut = larger_of(in_all(-kMaxLogit), smaller_of(in_all(kMaxLogit), to_floats(logits, edges.action + i)));
            const Floats logit = lanes_from(i) < edges.count ? cut : in_all(kPadLogit);
            store(edges.logit + i, logit);
            most = larger_of(logit, most);
        }
        const Floats largest = spread_largest(most);
        Floats total{};
        for (int i = 0; i < edges.stride; i += kLanes) {
            const Floats weight = exp32(load<Floats>(edges.logit + i) - largest);
            store(edges.prior + i, weight);
            total += weight;
        }
        const float sum = sum_of(total);
        for (int i = 0; i < edges.stride; i += kLanes) {
            const Floats prior = larger_of(in_all(kMinPrior), load<Floats>(edges.prior + i) / sum);
            store(edges.prior + i, lanes_from(i) < edges.count ? prior : Floats{});
        }
        auto& node = tree_.node(leaf);
        node.raw_value = value;
        node.status = NodeStatus::kExpanded;
    }

    const SearchContext<G>* context_;
    TreeT tree_;
    PlyKey key_{};
    std::int32_t cursor_ = kNoChild;     ///< Where the simulation under way stands, or kNoChild between two.
    std::int32_t simulations_ = 0;
    std::uint64_t exact_ = 0;
    bool prepared_ = false;              ///< Noise drawn, candidates fixed.
    std::size_t path_start_ = 0;
    std::vector<std::int32_t> pending_;  ///< Leaves handed out and not yet evaluated, in order.
    std::vector<Step> path_;             ///< Their paths, leaf included, and that of the simulation under way.
    RootPlan<G> plan_;
};

}  // namespace azq
