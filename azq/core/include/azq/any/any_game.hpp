/// What a binding sees of a game, whichever it is: each game instantiates these once, in its own translation unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "azq/search/config.hpp"
#include "azq/game.hpp"
#include "azq/search/game_record.hpp"
#include "azq/search/batch.hpp"
#include "azq/search/tree_table.hpp"

namespace azq {

using ParamValue = std::variant<bool, std::int64_t, double, std::string>;
using Params = std::map<std::string, ParamValue>;

class AnyState {
  public:
    virtual ~AnyState() = default;
    virtual std::unique_ptr<AnyState> clone() const = 0;
    virtual int actor() const = 0;
    virtual int mover() const = 0;  ///< actor(), or in a terminal position the player whose turn it would be.
    virtual std::vector<int> legal() const = 0;
    virtual bool is_legal(int action) const = 0;
    virtual void apply(int action) = 0;
    virtual float returns(int player) const = 0;
    virtual void observe(int player, std::uint8_t* packed) const = 0;
    virtual std::string action_text(int action) const = 0;
    virtual std::string text() const = 0;
    virtual std::string notation() const = 0;
    virtual std::vector<Outcome> chance() const = 0;                      ///< Empty where chance does not act.
    virtual std::string information_state(int player) const = 0;          ///< Without hidden information: the notation.
    virtual std::unique_ptr<AnyState> resample(int player, std::uint64_t seed) const = 0;
    virtual float margin(int player) const = 0;                           ///< Of a terminal position; 0 where the game has none.
    virtual bool truncated() const = 0;
    virtual void outcome_targets(int player, float* targets) const = 0;   ///< Of a terminal position.
    virtual void hidden(int player, std::uint8_t* targets) const = 0;
};

/// Root statistics of a spent search, indexed by action.
struct RootStatistics {
    int action;
    int best_action;
    float root_value;
    bool proven;
    std::vector<float> policy;
    std::vector<std::int32_t> visit_counts;
    std::vector<float> q_values;      ///< For the player to move; NaN where unvisited.
    std::vector<float> prior_logits;  ///< -infinity where illegal.
};

/// Evaluations that the searches of one game share, in any number of threads.
class AnyCache {
  public:
    virtual ~AnyCache() = default;
    virtual std::size_t entries() const = 0;
    virtual std::size_t memory_bytes() const = 0;
    virtual void clear() = 0;
};

/// What a search did since it was made.
struct Totals {
    std::uint64_t simulations;
    std::uint64_t exact;          ///< Simulations that ended in an exact value and asked for no evaluation.
    std::uint64_t leaves;         ///< Whose evaluation the trees wanted.
    std::uint64_t cache_lookups;
    std::uint64_t cache_hits;
    std::uint64_t plies;
};

/// Many games, one per slot. Calls on different slots may run in different threads.
class AnySearch {
  public:
    virtual ~AnySearch() = default;
    virtual int num_slots() const = 0;
    virtual std::size_t memory_bytes() const = 0;
    virtual SlotStatus status(int slot) const = 0;
    virtual int pending(int slot) const = 0;
    virtual bool take_changed(int slot) = 0;
    virtual const GameRecord& record(int slot) const = 0;
    virtual std::unique_ptr<AnyState> state(int slot) const = 0;
    virtual RootStatistics result(int slot) const = 0;
    virtual TreeTable tree(int slot) const = 0;
    virtual void start(int slot, GameRecord record) = 0;
    virtual void start_at(int slot, std::uint64_t uid, const AnyState& state) = 0;
    virtual void clear(int slot) = 0;
    virtual void play(int slot, int action) = 0;

    /// For slots first <= s < last: gives the leaves that are out their `answers`, where there are any, and searches on; then writes
    /// leaf k of slot s to row s * most_leaves(settings) + k of `packed`, and counts[s]. In rows longer than an observation, a bit for each of
    /// its legal actions follows.
    virtual void collect(int first, int last, const Answers* answers, std::uint8_t* packed, std::size_t row_bytes, std::int32_t* counts) = 0;
    /// The leaves' names by their numbers, or null where nobody asked for them.
    virtual const NamedLeaf* names() const = 0;
    /// The weight version under which the cache is asked from now on; not while another thread collects or applies.
    virtual void use_version(std::uint32_t version) = 0;
    /// For the same slots: keeps the answers in the cache, before anybody asks it anew.
    virtual void remember(int first, int last, const Answers& answers) = 0;
    /// For the same slots: gives the leaves their answers.
    virtual void apply(int first, int last, const Answers& answers) = 0;
    /// Runs quota(s) simulations on each of these slots, one after the other, so that a slot's tree stays in the cache.
    virtual std::uint64_t run_uniform(int first, int last, const std::function<std::uint64_t(int)>& quota) = 0;

    virtual Totals totals() const = 0;
};

/// How a search evaluates.
struct Sharing {
    std::shared_ptr<AnyCache> cache;  ///< Null: every leaf is asked for.
    bool merge_symmetries;            ///< Leaves are asked for in one form of all their images.
};

/// A search without a network.
template <class Score>
class AnyClassical {
  public:
    virtual ~AnyClassical() = default;
    virtual int best_action(const AnyState& state) = 0;
    virtual std::vector<Score> scores() const = 0;  ///< Of all actions, in the last search.
};
using AnyUct = AnyClassical<std::int32_t>;  ///< Visit counts.
using AnyPimc = AnyClassical<float>;        ///< Mean results.

/// Sizes of a game's arrays, 0 for what it does not have.
struct Dimensions {
    int players, actions, max_length, planes, rows, columns, scalars, packed_size, symmetries;
    int value_size, max_outcomes, outcome_targets, hidden;
    bool has_margin, has_hidden, sampled;
    const char* action_layout = "";
    std::span<const TokenGroup> token_groups = {};
    bool has_scores = false;
    ScoreScale scores{};
};

class AnyGame {
  public:
    virtual ~AnyGame() = default;
    virtual std::string name() const = 0;
    virtual Dimensions dimensions() const = 0;
    virtual const Params& params() const = 0;  ///< All of them, defaults included.
    virtual std::unique_ptr<AnyState> new_initial_state() const = 0;
    /// The position of a line of notation, or null and the rule it broke.
    virtual std::pair<std::unique_ptr<AnyState>, std::string> parse(const std::string& notation) const = 0;
    /// Weights of the outcome targets and, last, the bias; empty where the game has none.
    virtual std::vector<float> outcome_combination() const = 0;
    virtual int symmetric_action(int symmetry, int action) const = 0;
    virtual int symmetric_cell(int symmetry, int cell) const = 0;
    virtual std::unique_ptr<AnySearch> make_search(const SearchConfig& config, int num_slots, std::uint64_t seed, bool autoplay,
                                                   const Sharing& sharing) const = 0;
    virtual double search_bytes(const SearchConfig& config, int num_slots) const = 0;  ///< At most; what is never touched included.
    virtual std::unique_ptr<AnyCache> make_cache(std::size_t entries) const = 0;  ///< A power of two.
    virtual std::unique_ptr<AnyUct> make_uct(int num_simulations, std::uint64_t seed, float c_uct) const = 0;  ///< Null: it has secrets.
    virtual std::unique_ptr<AnyPimc> make_pimc(int num_determinizations, std::uint64_t seed) const = 0;
    virtual std::pair<std::int64_t, std::int64_t> random_playouts(std::int64_t count, std::uint64_t seed) const = 0;
    virtual std::int64_t random_redraws(std::int64_t count, std::uint64_t seed) const = 0;  ///< 0: nothing is hidden.
};

}  // namespace azq
