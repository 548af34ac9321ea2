/// Many games searched in step, as JavaScript sees them: its arrays, and whatever may be wrong with its arguments.
#include <cstdlib>
#include <utility>

#include "azq/any/any_game.hpp"
#include "exchange.hpp"

namespace azq::wasm {
namespace {

constexpr double kMostMemory = 3.0e9;  ///< Of 4 GiB that have addresses.

/// A search with the arrays of its leaves.
struct Leaves {
    Leaves(const AnyGame& of, const SearchConfig& config, int slots, std::uint64_t seed, bool plays)
        : size(of.dimensions()), rows(static_cast<std::size_t>(slots) * static_cast<std::size_t>(most_leaves(config, size.actions))), autoplay(plays),
          game(of), search(of.make_search(config, slots, seed, plays, {nullptr, false})), batch(slots, most_leaves(config, size.actions)),
          packed(rows * static_cast<std::size_t>(size.packed_size)), slots_of(rows), numbers(rows * row_numbers()), halves(rows * row_numbers()) {}

    std::size_t actions() const { return static_cast<std::size_t>(size.actions); }
    std::size_t values() const { return static_cast<std::size_t>(size.value_size); }
    std::size_t row_numbers() const { return actions() + values(); }

    Dimensions size;
    std::size_t rows;  ///< Most leaves of a collect.
    bool autoplay;
    const AnyGame& game;
    std::unique_ptr<AnySearch> search;
    Batch batch;
    int awaited = 0;  ///< Leaves of the last collect that `apply` has not had yet.
    std::uint64_t merged = 0;
    std::vector<std::uint8_t> packed;
    std::vector<std::int32_t> slots_of;
    std::vector<float> numbers;  ///< Written by JavaScript: logits (L, A), then values (L, V).
    std::vector<Half> halves;    ///< The same as they count.
};

/// What is wrong with a value; "" where it fits.
template <class T>
std::string read(SearchConfig& config, const Params& given, const Setting<T>& setting) {
    const auto found = given.find(setting.name);
    if (found == given.end()) return std::string("search: ") + setting.name + " is missing";
    const bool* flag = std::get_if<bool>(&found->second);
    const auto* integer = std::get_if<std::int64_t>(&found->second);
    const double* number = std::get_if<double>(&found->second);
    const std::string refusal = std::string("search: ") + setting.name + " ";
    T value{};
    if constexpr (std::is_same_v<T, bool>) {
        if (flag == nullptr) return refusal + "must be true or false";
        value = *flag;
    } else {
        const bool fits = integer != nullptr || (std::is_same_v<T, float> && number != nullptr);
        const double plain = integer != nullptr ? static_cast<double>(*integer) : (number != nullptr ? *number : 0.0);
        if (!fits || !(static_cast<double>(setting.least) <= plain && plain <= static_cast<double>(setting.most))) return refusal + setting.rule;
        value = static_cast<T>(plain);
    }
    config.*setting.member = value;
    return "";
}

std::string read_all(SearchConfig& config, Params given) {
    const auto algorithm = given.find("algorithm");
    const std::string* name = algorithm == given.end() ? nullptr : std::get_if<std::string>(&algorithm->second);
    if (name == nullptr || (*name != "gumbel" && *name != "puct")) return "search: algorithm must be gumbel or puct";
    config.algorithm = *name == "gumbel" ? Algorithm::kGumbel : Algorithm::kPuct;
    given.erase(algorithm);
    std::string broken;
    const auto take = [&](const auto& setting) {
        if (broken.empty()) broken = read(config, given, setting);
        given.erase(setting.name);
    };
    std::apply([&](const auto&... settings) { (take(settings), ...); }, kSettings);
    if (!broken.empty() || given.empty()) return broken;
    return "search: there is no setting " + given.begin()->first;
}

/// Whether so much could be had; it is not kept.
bool fits_in_memory(std::size_t bytes) {
    void* memory = std::malloc(bytes);
    std::free(memory);
    return memory != nullptr;
}

/// A search with the settings in force; null and why not.
AZQ_EXPORT(azq_search) Leaves* make(const AnyGame& game, int slots, std::uint64_t seed, bool autoplay) {
    Exchange& all = exchange();
    SearchConfig config{};
    all.answer(read_all(config, std::exchange(all.params, {})));
    if (!all.output.empty()) return nullptr;
    const Dimensions size = game.dimensions();
    if (size.has_hidden && config.leaves_per_step > 1) {
        all.refuse("search: leaves_per_step must be 1 in " + game.name() + ", whose hands are hidden");
        return nullptr;
    }
    if (size.sampled && (config.batch_root || config.decisive_moves)) {
        all.refuse("search: batch_root and decisive_moves must be false in " + game.name() + ", which has chance or hidden hands");
        return nullptr;
    }
    const double row = 6.0 * (size.actions + size.value_size) + size.packed_size;
    const double bytes = game.search_bytes(config, slots) + row * slots * most_leaves(config, size.actions);
    if (bytes > kMostMemory || !fits_in_memory(static_cast<std::size_t>(bytes))) {
        all.refuse("search: " + std::to_string(slots) + " games of " + game.name() + " with " + std::to_string(config.num_simulations) + " simulations need " +
                   std::to_string(static_cast<int>(bytes / 1e6)) + " MB, which cannot be had here; ask for fewer of either");
        return nullptr;
    }
    return new Leaves(game, config, slots, seed, autoplay);
}

AZQ_EXPORT(azq_free_search) void free_search(Leaves* self) { delete self; }
AZQ_EXPORT(azq_status) int status(const Leaves& self, int slot) { return static_cast<int>(self.search->status(slot)); }
AZQ_EXPORT(azq_pending) int pending(const Leaves& self, int slot) { return self.search->pending(slot); }

template <class T>
void take(std::vector<T>& field, std::size_t size, const std::byte*& from) {
    field.resize(size);
    std::memcpy(field.data(), from, size * sizeof(T));
    from += size * sizeof(T);
}

/// The input holds the record's arrays one after the other.
AZQ_EXPORT(azq_start) int start(Leaves& self, int slot, std::uint64_t uid, std::size_t plies) {
    GameRecord record;
    record.uid = uid;
    const std::byte* from = exchange().input.data();
    take(record.actions, plies, from);
    take(record.policies, plies * self.actions(), from);
    take(record.root_values, plies * self.values(), from);
    take(record.simulations, plies, from);
    take(record.weight_versions, plies, from);
    const std::unique_ptr<AnyState> state = self.game.new_initial_state();
    for (std::size_t ply = 0; ply < plies; ++ply) {
        const int action = record.actions[ply];
        if (!state->is_legal(action)) {
            self.search->clear(slot);
            return exchange().refuse(illegal(action, *state, "at ply " + std::to_string(ply) + " of game " + std::to_string(uid)));
        }
        state->apply(action);
    }
    self.search->start(slot, std::move(record));
    return 0;
}

AZQ_EXPORT(azq_start_at) void start_at(Leaves& self, int slot, std::uint64_t uid, const AnyState& state) { self.search->start_at(slot, uid, state); }
AZQ_EXPORT(azq_clear) void clear(Leaves& self, int slot) { self.search->clear(slot); }

AZQ_EXPORT(azq_collect) int collect(Leaves& self) {
    const auto row_bytes = static_cast<std::size_t>(self.size.packed_size);
    self.search->collect(0, self.search->num_slots(), nullptr, self.packed.data(), row_bytes, self.batch.counts());
    self.awaited = self.batch.gather(self.packed.data(), row_bytes, self.slots_of.data(), nullptr, self.merged);
    return self.awaited;
}

AZQ_EXPORT(azq_packed) const std::uint8_t* packed(const Leaves& self) { return self.packed.data(); }
AZQ_EXPORT(azq_slots_of) const std::int32_t* slots_of(const Leaves& self) { return self.slots_of.data(); }

/// Where the evaluations are to be written.
AZQ_EXPORT(azq_numbers) float* numbers(Leaves& self) { return self.numbers.data(); }

AZQ_EXPORT(azq_apply) int apply(Leaves& self, std::uint32_t version) {
    const auto leaves = static_cast<std::size_t>(self.awaited);
    bool broken = false;
    for (std::size_t i = 0; i < leaves * self.row_numbers(); ++i) {
        broken |= self.numbers[i] != self.numbers[i];
        self.halves[i] = to_half(self.numbers[i]);
    }
    if (broken) return exchange().refuse("apply: the evaluations hold NaN, the evaluator is broken; nothing was applied");
    self.search->apply(0, self.search->num_slots(), {self.batch, self.halves.data(), self.halves.data() + leaves * self.actions(), version});
    self.awaited = 0;
    return 0;
}

AZQ_EXPORT(azq_run_uniform) double run_uniform(Leaves& self, double simulations) {
    const auto each = static_cast<std::uint64_t>(simulations) / static_cast<std::uint64_t>(self.search->num_slots());
    return static_cast<double>(self.search->run_uniform(0, self.search->num_slots(), [&](int) { return each; }));
}

/// uid, plies, returns, then the arrays as they travel.
AZQ_EXPORT(azq_record) void record(const Leaves& self, int slot) {
    Exchange& all = exchange();
    const GameRecord& game = self.search->record(slot);
    const std::unique_ptr<AnyState> state = self.search->state(slot);
    all.output.clear();
    all.append(game.uid);
    all.append(std::int32_t{game.plies()});
    for (int player = 0; player < self.size.players; ++player) all.append(state->returns(player));
    all.append(game.actions);
    all.append(game.policies);
    all.append(game.root_values);
    all.append(game.simulations);
    all.append(game.weight_versions);
}

/// action, best_action, proven, root_value; then policy, q_values, prior_logits and visit_counts.
AZQ_EXPORT(azq_result) void result(const Leaves& self, int slot) {
    Exchange& all = exchange();
    const RootStatistics root = self.search->result(slot);
    all.output.clear();
    for (const int number : {root.action, root.best_action, static_cast<int>(root.proven)}) all.append(number);
    all.append(root.root_value);
    all.append(root.policy);
    all.append(root.q_values);
    all.append(root.prior_logits);
    all.append(root.visit_counts);
}

/// Nodes N, then the arrays of a TreeTable, `actor` last, the only one of bytes.
AZQ_EXPORT(azq_tree) void tree(const Leaves& self, int slot) {
    Exchange& all = exchange();
    const TreeTable table = self.search->tree(slot);
    all.output.clear();
    all.append(static_cast<std::int32_t>(table.parent.size()));
    for (const auto* whole : {&table.parent, &table.action, &table.visits, &table.child_visits}) all.append(*whole);
    for (const auto* real : {&table.raw_value, &table.mean, &table.lower, &table.upper, &table.prior, &table.q}) all.append(*real);
    all.append(table.actor);
}

AZQ_EXPORT(azq_state_of) AnyState* state_of(const Leaves& self, int slot) { return self.search->state(slot).release(); }

AZQ_EXPORT(azq_play) int play(Leaves& self, int slot, int action) {
    const std::unique_ptr<AnyState> state = self.search->state(slot);
    if (!state->is_legal(action)) return exchange().refuse(illegal(action, *state, "in slot " + std::to_string(slot)));
    self.search->play(slot, action);
    return 0;
}

/// As f64: simulations, exact, leaves, plies, bytes of memory.
AZQ_EXPORT(azq_totals) void totals(const Leaves& self) {
    const Totals all = self.search->totals();
    exchange().output.clear();
    for (const std::uint64_t count : {all.simulations, all.exact, all.leaves, all.plies, std::uint64_t{self.search->memory_bytes()}}) {
        exchange().append(static_cast<double>(count));
    }
}

}  // namespace
}  // namespace azq::wasm
