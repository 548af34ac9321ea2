#include <algorithm>
#include <vector>

#include "azq/games/connect_four.hpp"
#include "azq/games/tic_tac_toe.hpp"
#include "check.hpp"
#include "drive.hpp"

namespace azq::test {
namespace {

SearchConfig make_config(Algorithm algorithm, int simulations, int leaves, bool reuse) {
    return SearchConfig{algorithm, simulations, leaves, false, false, reuse, 16, 1.0f, 50.0f, 1.0f, 2.0f, 1.5f, 0.25f, 0.5f, 0.25f, 1.0f, 6, 0, 1};
}

/// Any deterministic evaluation: a hash of the observation.
float hashed(const std::uint8_t* packed, int size, std::uint32_t salt) {
    std::uint32_t h = 2166136261u ^ salt;
    for (int i = 0; i < size; ++i) h = (h ^ packed[i]) * 16777619u;
    return static_cast<float>((h ^ (h >> 15)) % 2001u) * 0.001f - 1.0f;
}

template <Game G>
struct Harness {
    Harness(const SearchConfig& config, int slots, bool autoplay, const Sharing& sharing = {nullptr, false})
        : search(G{}, config, slots, 42, autoplay, sharing), driver(search, most_leaves(config, G::kNumActions)) {}

    bool next(bool at_once = true) {
        return driver.next(at_once, [](const std::uint8_t* packed, Half* logits, Half* values) {
            for (std::uint32_t a = 0; a < G::kNumActions; ++a) logits[a] = to_half(hashed(packed, kPackedSize<G>, a));
            values[0] = to_half(hashed(packed, kPackedSize<G>, G::kNumActions));
        });
    }

    ManyGames<G> search;
    Driver<G> driver;
};

template <Game G>
void test_self_play(const SearchConfig& config, const Sharing& sharing) {
    constexpr int kSlots = 5;
    Harness<G> harness(config, kSlots, true, sharing);
    for (int slot = 0; slot < kSlots; ++slot) {
        GameRecord record;
        record.uid = static_cast<std::uint64_t>(slot) + 1;
        harness.search.start(slot, std::move(record));
    }
    Harness<G> other(config, kSlots, true, {sharing.cache == nullptr ? nullptr : std::make_shared<ErasedCache<G>>(512), sharing.merge_symmetries});
    for (int slot = 0; slot < kSlots; ++slot) {
        GameRecord record;
        record.uid = static_cast<std::uint64_t>(slot) + 1;
        other.search.start(slot, std::move(record));
    }
    while (harness.next()) {
        CHECK(harness.search.memory_bytes() > 0);
        CHECK(other.next(false));
    }
    CHECK(!other.next(false));  // answers given with the next collect make the same games
    for (int slot = 0; slot < kSlots; ++slot) {
        CHECK(harness.search.status(slot) == SlotStatus::kFinished);
        const GameRecord& record = harness.search.record(slot);
        CHECK(record.plies() <= G::kMaxLength);
        CHECK(record.actions == other.search.record(slot).actions && record.root_values == other.search.record(slot).root_values);
        CHECK(record.policies.size() == record.actions.size() * G::kNumActions);
        CHECK(record.simulations.back() > 0);
    }
    const Totals totals = harness.search.totals();
    CHECK(sharing.cache != nullptr || totals.cache_lookups + harness.driver.merged == 0);
    CHECK((sharing.cache == nullptr || config.leaves_per_step > 1) == (totals.cache_hits == 0));
    CHECK(totals.simulations > 0 && totals.leaves > totals.cache_hits && totals.plies > 0 && totals.exact > 0);
}

/// Anyone's moves, before and after the budget is spent; the tree stays within its block.
template <Game G>
void test_played_from_outside(const SearchConfig& config) {
    Harness<G> harness(config, 1, false);
    harness.search.start(0, GameRecord{});
    int ply = 0;
    while (harness.search.status(0) != SlotStatus::kFinished) {
        for (int i = 0; i < (ply % 3 == 0 ? 2 : 100000) && harness.next(); ++i) {
        }
        const std::vector<int> legal = harness.search.state(0)->legal();
        const bool spent = harness.search.status(0) == SlotStatus::kIdle;
        const int action = spent ? harness.search.result(0).best_action : legal[static_cast<std::size_t>(ply) % legal.size()];
        CHECK(std::count(legal.begin(), legal.end(), action) == 1);
        CHECK(harness.search.tree(0).parent.size() <= static_cast<std::size_t>(2 * config.num_simulations + 1));
        harness.search.play(0, action);
        ++ply;
    }
    CHECK(harness.search.record(0).plies() == ply);
}

template <Game G>
void test_all_settings() {
    for (const Algorithm algorithm : {Algorithm::kGumbel, Algorithm::kPuct}) {
        for (const bool reuse : {false, true}) {
            for (const int leaves : {1, 3}) {
                for (const bool merge : {false, true}) {
                    test_self_play<G>(make_config(algorithm, 30, leaves, reuse), {nullptr, merge});
                    test_self_play<G>(make_config(algorithm, 30, leaves, reuse), {std::make_shared<ErasedCache<G>>(512), merge});
                }
                test_played_from_outside<G>(make_config(algorithm, 30, leaves, reuse));
                SearchConfig early = make_config(algorithm, 30, leaves, reuse);
                early.batch_root = true;
                test_self_play<G>(early, {nullptr, leaves > 1});
                test_self_play<G>(early, {std::make_shared<ErasedCache<G>>(512), leaves == 1});
                test_played_from_outside<G>(early);
                SearchConfig decisive = make_config(algorithm, 30, leaves, reuse);
                decisive.decisive_moves = true;
                decisive.batch_root = reuse;
                test_self_play<G>(decisive, {std::make_shared<ErasedCache<G>>(512), leaves == 1});
                test_played_from_outside<G>(decisive);
            }
        }
    }
    SearchConfig chain = make_config(Algorithm::kGumbel, 12, 1, true);
    chain.max_considered_actions = 1;  // all visits below one child: subtrees are trimmed
    test_played_from_outside<G>(chain);
}

void test_uniform_evaluator() {
    ManyGames<ConnectFour> search(ConnectFour{}, make_config(Algorithm::kPuct, 40, 1, true), 3, 1, true, Sharing{});
    const auto quota = [](int slot) { return static_cast<std::uint64_t>(1000 + slot); };
    CHECK(search.run_uniform(0, 3, quota) == 3003);
    CHECK(search.totals().simulations == 3003);
}

}  // namespace

void test_search() {
    test_all_settings<ConnectFour>();
    test_all_settings<TicTacToe>();
    test_uniform_evaluator();
}

}  // namespace azq::test
