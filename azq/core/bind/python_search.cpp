#include <nanobind/stl/optional.h>

#include "python_search.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace azq::bind {

PyCache::PyCache(const PyGame& of, std::size_t entries) : game(of) {
    if (entries == 0 || (entries & (entries - 1)) != 0) {
        raise_azq("ConfigError", "an evaluation cache has a power of two of entries, not " + std::to_string(entries));
    }
    cache = of.rules->make_cache(entries);
}

static int at_least_one(int number, const char* name) {
    if (number < 1) raise_azq("ConfigError", std::string(name) + " must be at least 1, not " + std::to_string(number));
    return number;
}

PySearch::PySearch(const PyGame& game, const SearchConfig& config, int num_slots, std::uint64_t seed, int num_threads, bool autoplay,
                   const PyCache* cache, bool merge_symmetries)
    : game_(game), config_(config), autoplay_(autoplay), num_threads_(at_least_one(num_threads, "num_threads")), threads_(num_threads),
      batch_(at_least_one(num_slots, "num_slots"), most_leaves(config, game.dimensions.actions)) {
    if (cache != nullptr && !same_game(cache->game, game)) {
        raise_azq("ConfigError", "the evaluation cache belongs to another game, or to other parameters of it");
    }
    if (game.dimensions.has_hidden && config.leaves_per_step > 1) {
        raise_azq("ConfigError", "search: leaves_per_step must be 1 in " + game.rules->name() + ", whose hands are hidden");
    }
    if (game.dimensions.sampled && (config.batch_root || config.decisive_moves)) {
        raise_azq("ConfigError", "search: batch_root and decisive_moves must be false in " + game.rules->name() + ", which has chance or hidden hands");
    }
    search_ = game.rules->make_search(config, num_slots, seed, autoplay, {cache == nullptr ? nullptr : cache->cache, merge_symmetries});
}

void PySearch::check_slot(int slot) const {
    if (working_.load()) raise_runtime("this search is working in another thread");
    if (slot < 0 || slot >= num_slots()) {
        throw nb::index_error(("slot " + std::to_string(slot) + " is not in 0.." + std::to_string(num_slots() - 1)).c_str());
    }
}

void PySearch::check_filled(int slot) const {
    check_slot(slot);
    if (search_->status(slot) == SlotStatus::kEmpty) raise_runtime("slot " + std::to_string(slot) + " is empty");
}

/// A slot whose leaves are out for evaluation must not change before `apply` has had them.
void PySearch::check_still(int slot) {
    check_slot(slot);
    if (search_->pending(slot) > 0) give_answers();
    if (search_->pending(slot) > 0) raise_runtime("slot " + std::to_string(slot) + " waits for evaluations; call apply first");
}

int PySearch::piece() const {
    const int share = num_slots() / (8 * num_threads_);
    return share < 1 ? 1 : share;
}

GameRecord PySearch::replayed(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions) const {
    GameRecord record;
    record.uid = uid;
    record.actions = to_vector(actions);
    const std::unique_ptr<AnyState> state = game_.rules->new_initial_state();
    for (std::size_t ply = 0; ply < record.actions.size(); ++ply) {
        const int action = record.actions[ply];
        if (!state->is_legal(action)) {
            search_->clear(slot);
            raise_illegal(action, state->legal(), "at ply " + std::to_string(ply) + " of game " + std::to_string(uid));
        }
        state->apply(action);
    }
    return record;
}

/// Copies one target array of an adopted record, or leaves `size` zeros where the caller has none.
template <class T, class Array>
static void adopt(std::vector<T>& field, const std::optional<Array>& given, std::size_t size, const char* name) {
    if (given.has_value() && given->size() != size) {
        const std::string sizes = std::to_string(given->size()) + " entries, the actions ask for " + std::to_string(size);
        throw nb::value_error((std::string(name) + " has " + sizes).c_str());
    }
    field.assign(size, T{});
    if (given.has_value()) std::copy(given->data(), given->data() + size, field.begin());
}

void PySearch::start(int slot, std::uint64_t uid, const Input<std::uint16_t, 1>& actions, const OptionalInput<Half, 2>& policies,
                     const OptionalInput<float, 2>& root_values, const OptionalInput<std::uint16_t, 1>& simulations,
                     const OptionalInput<std::uint32_t, 1>& weight_versions) {
    check_still(slot);
    GameRecord record = replayed(slot, uid, actions);
    const std::size_t plies = record.actions.size();
    adopt(record.policies, policies, plies * static_cast<std::size_t>(game_.dimensions.actions), "policies");
    adopt(record.root_values, root_values, plies * static_cast<std::size_t>(game_.dimensions.value_size), "root_values");
    adopt(record.simulations, simulations, plies, "simulations");
    adopt(record.weight_versions, weight_versions, plies, "weight_versions");
    search_->start(slot, std::move(record));
}

void PySearch::start_at(int slot, std::uint64_t uid, const PyState& state) {
    check_still(slot);
    if (!same_game(state.game, game_)) throw nb::value_error("the state belongs to another game, or to other parameters of it");
    if (autoplay_) raise_runtime("start_at: self-play games begin at the beginning, so that their records replay");
    search_->start_at(slot, uid, *state.state);
}

void PySearch::clear(int slot) {
    check_still(slot);
    search_->clear(slot);
}

int PySearch::collect(const Output<std::uint8_t, 2>& packed, const Output<std::int32_t, 1>& slots) {
    const auto leaves = static_cast<std::size_t>(most_leaves(config_, game_.dimensions.actions));
    const auto capacity = static_cast<std::size_t>(num_slots()) * leaves;
    const auto row = static_cast<std::size_t>(game_.dimensions.packed_size);
    const std::size_t longer = row + (static_cast<std::size_t>(game_.dimensions.actions) + 7) / 8;
    const std::size_t bytes = packed.shape(1);
    if (packed.shape(0) < capacity || (bytes != row && bytes != longer) || slots.shape(0) < capacity) {
        throw nb::value_error(("collect needs packed of at least (" + std::to_string(capacity) + ", " + std::to_string(row) + " or " +
                               std::to_string(longer) + ") and slots of at least (" + std::to_string(capacity) + ",)").c_str());
    }
    if (awaited_ > 0) raise_runtime("collect: " + std::to_string(awaited_) + " leaves of the last collect wait for apply");
    const Working working(working_);
    std::uint8_t* rows = packed.data();
    std::int32_t* owners = slots.data();
    const nb::gil_scoped_release release;
    const Answers given = answers();
    if (answered_) remember(given);
    const Answers* due = std::exchange(answered_, false) ? &given : nullptr;
    threads_.run(num_slots(), piece(), [&](int first, int last) { search_->collect(first, last, due, rows, bytes, batch_.counts()); });
    awaited_ = batch_.gather(rows, bytes, owners, search_->names(), merged_);
    return awaited_;
}

static void check_numbers(const Half* numbers, std::size_t count, const char* name) {
    std::uint16_t largest = 0;  // of the magnitudes, for a NaN's is above infinity's; so that lanes are compared at once
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<std::uint16_t>(numbers[i].bits & 0x7fffu));
    if (largest > 0x7c00u) throw nb::value_error((std::string(name) + " holds NaN: the evaluator is broken; nothing was applied").c_str());
}

void PySearch::apply(const Input<Half, 2>& logits, const Input<Half, 2>& values, std::uint32_t weight_version) {
    const auto leaves = static_cast<std::size_t>(awaited_);
    const auto actions = static_cast<std::size_t>(game_.dimensions.actions);
    const auto each = static_cast<std::size_t>(game_.dimensions.value_size);
    if (awaited_ == 0) raise_runtime("apply: no leaves are waiting; call collect first");
    if (logits.shape(0) != leaves || logits.shape(1) != actions || values.shape(0) != leaves || values.shape(1) != each) {
        throw nb::value_error(("apply needs logits of (" + std::to_string(leaves) + ", " + std::to_string(actions) + ") and values of (" +
                               std::to_string(leaves) + ", " + std::to_string(each) + ")").c_str());
    }
    check_numbers(logits.data(), leaves * actions, "logits");
    check_numbers(values.data(), leaves * each, "values");
    const Working working(working_);
    logits_.assign(logits.data(), logits.data() + leaves * actions);
    values_.assign(values.data(), values.data() + leaves * each);
    version_ = weight_version;
    awaited_ = 0;
    answered_ = true;
}

/// As the cache is asked from now on.
void PySearch::remember(const Answers& given) {
    search_->use_version(version_);
    threads_.run(num_slots(), piece(), [&](int first, int last) { search_->remember(first, last, given); });
}

void PySearch::give_answers() {
    if (!std::exchange(answered_, false)) return;
    const Working working(working_);
    const Answers given = answers();
    const nb::gil_scoped_release release;
    remember(given);
    threads_.run(num_slots(), piece(), [&](int first, int last) { search_->apply(first, last, given); });
}

Totals PySearch::totals() {
    if (!working_.load()) give_answers();
    return search_->totals();
}

std::uint64_t PySearch::run_uniform(std::uint64_t max_simulations) {
    if (awaited_ > 0) raise_runtime("run_uniform: leaves of the last collect wait for apply");
    if (!autoplay_) raise_runtime("run_uniform plays games and needs autoplay");
    give_answers();
    const Working working(working_);
    const auto slots = static_cast<std::uint64_t>(num_slots());
    const std::uint64_t rest = max_simulations % slots;
    const auto quota = [&](int slot) { return max_simulations / slots + (static_cast<std::uint64_t>(slot) < rest ? 1 : 0); };
    std::atomic<std::uint64_t> done{0};
    const nb::gil_scoped_release release;
    threads_.run(num_slots(), 1, [&](int first, int last) { done += search_->run_uniform(first, last, quota); });
    return done.load();
}

std::vector<int> PySearch::slots_with(SlotStatus status) const {
    std::vector<int> slots;
    for (int slot = 0; slot < num_slots(); ++slot) {
        if (search_->status(slot) == status) slots.push_back(slot);
    }
    return slots;
}

std::vector<int> PySearch::changed_slots() {
    std::vector<int> slots;
    for (int slot = 0; slot < num_slots(); ++slot) {
        const SlotStatus status = search_->status(slot);
        const bool open = status != SlotStatus::kEmpty && status != SlotStatus::kFinished;
        if (open && search_->take_changed(slot)) slots.push_back(slot);
    }
    return slots;
}

PyRecord PySearch::record(int slot) const {
    check_filled(slot);
    return PyRecord{search_->record(slot), returns_of(game_, *search_->state(slot)), search_->status(slot) == SlotStatus::kFinished,
                    static_cast<std::size_t>(game_.dimensions.actions), static_cast<std::size_t>(game_.dimensions.value_size)};
}

/// PUCT has an answer from its first visit on, Gumbel once its schedule is done.
RootStatistics PySearch::result(int slot) {
    check_slot(slot);
    const SlotStatus status = search_->status(slot);
    const bool stopped = status == SlotStatus::kBusy && config_.algorithm == Algorithm::kPuct;
    if (stopped) check_still(slot);
    if (stopped || status == SlotStatus::kIdle) {
        RootStatistics result = search_->result(slot);
        const auto visited = [](std::int32_t visits) { return visits > 0; };
        if (!stopped || std::any_of(result.visit_counts.begin(), result.visit_counts.end(), visited)) return result;
    }
    raise_runtime("slot " + std::to_string(slot) + " has no spent search; see idle_slots()");
}

void PySearch::play(int slot, int action) {
    check_filled(slot);
    check_still(slot);
    const std::unique_ptr<AnyState> state = search_->state(slot);
    if (!state->is_legal(action)) {
        const std::string ply = std::to_string(search_->record(slot).plies());
        raise_illegal(action, state->legal(), "in slot " + std::to_string(slot) + " at ply " + ply);
    }
    search_->play(slot, action);
}

PyState PySearch::state(int slot) const {
    check_filled(slot);
    const GameRecord& record = search_->record(slot);
    return PyState(game_, search_->state(slot), {record.actions.begin(), record.actions.end()});
}

nb::dict PySearch::tree(int slot) {
    check_filled(slot);
    give_answers();
    const TreeTable table = search_->tree(slot);
    const std::size_t nodes = table.parent.size();
    const auto actions = static_cast<std::size_t>(game_.dimensions.actions);
    nb::dict result;
    result["parent"] = to_numpy(table.parent);
    result["action"] = to_numpy(table.action);
    result["actor"] = to_numpy(table.actor);
    result["visits"] = to_numpy(table.visits);
    result["raw_value"] = to_numpy(table.raw_value);
    result["mean"] = to_numpy(table.mean);
    result["lower"] = to_numpy(table.lower);
    result["upper"] = to_numpy(table.upper);
    result["child_visits"] = to_numpy(table.child_visits, {nodes, actions});
    result["prior"] = to_numpy(table.prior, {nodes, actions});
    result["q"] = to_numpy(table.q, {nodes, actions});
    return result;
}

}  // namespace azq::bind
