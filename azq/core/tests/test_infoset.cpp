#include <cmath>
#include <vector>

#include "check.hpp"
#include "drive.hpp"
#include "kuhn_poker.hpp"

namespace azq::test {
namespace {

SearchConfig make_config(Algorithm algorithm, int simulations, int leaves, int worlds = 0) {
    return SearchConfig{algorithm, simulations, leaves, false, false, true, 16, 0.0f, 50.0f, 1.0f, 2.0f, 1.5f, 0.25f, 0.5f, 0.0f, 0.0f, 0, worlds, 0};
}

/// Uniform priors and value 0 until no slot asks any more.
void run(ManyGames<KuhnPoker>& search, int leaves) {
    Driver<KuhnPoker> driver(search, leaves);
    while (driver.next(true, [](const std::uint8_t*, Half*, Half*) {})) {
    }
}

KuhnPoker::State dealt(int first, int second, const std::vector<int>& actions) {
    const KuhnPoker rules{};
    KuhnPoker::State state = rules.initial();
    rules.apply(state, first);
    rules.apply(state, second);
    for (const int action : actions) rules.apply(state, action);
    return state;
}

RootStatistics searched(const KuhnPoker::State& state, Algorithm algorithm, int simulations, int leaves, int worlds = 0) {
    ManyGames<KuhnPoker> search(KuhnPoker{}, make_config(algorithm, simulations, leaves, worlds), 1, 3, false, Sharing{});
    search.start_at(0, 1, ErasedState<KuhnPoker>(KuhnPoker{}, state));
    run(search, leaves);
    CHECK(search.status(0) == SlotStatus::kIdle);
    return search.result(0);
}

/// Facing a bet: a jack never calls (value of passing -1/2), a king always does (value 1), and a queen is worth the same either way.
void test_answers_to_a_bet(Algorithm algorithm) {
    for (const int other : {1, 2}) {
        const RootStatistics jack = searched(dealt(other, 0, {1}), algorithm, 64, 1);
        CHECK(jack.best_action == 0);
        CHECK(jack.q_values[1] == -1.0f && jack.q_values[0] == -0.5f);
    }
    for (const int other : {0, 1}) {
        const RootStatistics king = searched(dealt(other, 2, {1}), algorithm, 64, 1);
        CHECK(king.best_action == 1 && king.q_values[1] == 1.0f);
    }
    const RootStatistics queen = searched(dealt(2, 1, {1}), algorithm, 256, 1);
    CHECK(std::fabs(queen.q_values[1]) < 0.25f);  // half of the hidden cards are jacks, though this one is a king
}

/// What the player to move cannot tell apart is searched alike, number for number.
void test_no_peeking(Algorithm algorithm) {
    for (const auto& actions : {std::vector<int>{}, std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 1}}) {
        const int mover = static_cast<int>(actions.size()) % 2;
        for (int own = 0; own < 3; ++own) {
            const int one = (own + 1) % 3;
            const int two = (own + 2) % 3;
            const auto state = [&](int other) { return mover == 0 ? dealt(own, other, actions) : dealt(other, own, actions); };
            const RootStatistics first = searched(state(one), algorithm, 40, 1);
            const RootStatistics second = searched(state(two), algorithm, 40, 1);
            CHECK(first.visit_counts == second.visit_counts && first.q_values == second.q_values);
            CHECK(first.root_value == second.root_value && first.policy == second.policy);
        }
    }
}

/// Where everybody sees everything, a queen that passes and is bet against calls a jack and gives up against a king: to her passing is
/// worth 0 (strategy fusion). Information sets know that she cannot tell them apart then: in equilibrium it is worth -1/6.
void test_plain_determinization() {
    const RootStatistics fused = searched(dealt(1, 0, {}), Algorithm::kPuct, 2000, 1, 2);
    const RootStatistics fused_again = searched(dealt(1, 2, {}), Algorithm::kPuct, 2000, 1, 2);
    CHECK(fused.visit_counts == fused_again.visit_counts);  // the worlds are drawn, not seen
    const RootStatistics proper = searched(dealt(1, 0, {}), Algorithm::kPuct, 2000, 1);
    CHECK(std::fabs(fused.q_values[0]) < 0.05f);
    CHECK(std::fabs(proper.q_values[0] + 1.0f / 6.0f) < 0.04f);
}

/// With equal visits, the first visits of both actions meet the same hidden card: a queen's two answers to a bet differ by
/// exactly what they are worth.
void test_common_random_numbers() {
    for (int simulations = 2; simulations <= 16; simulations += 2) {
        const RootStatistics queen = searched(dealt(0, 1, {1}), Algorithm::kGumbel, simulations, 1);
        if (queen.visit_counts[0] != queen.visit_counts[1]) continue;
        const float wins = (queen.q_values[1] + 1.0f) / 2.0f * static_cast<float>(queen.visit_counts[1]);
        CHECK(std::fabs(wins - std::round(wins)) < 1e-4f);
        CHECK(queen.q_values[0] == -0.5f);
    }
}

/// Self-play records chance as plies without targets, and a record goes on from anywhere as if nothing had happened.
void test_records() {
    ManyGames<KuhnPoker> search(KuhnPoker{}, make_config(Algorithm::kPuct, 12, 1), 3, 7, true, Sharing{});
    for (int slot = 0; slot < 3; ++slot) {
        GameRecord record;
        record.uid = 11 + static_cast<std::uint64_t>(slot);
        search.start(slot, std::move(record));
    }
    run(search, 1);
    for (int slot = 0; slot < 3; ++slot) {
        CHECK(search.status(slot) == SlotStatus::kFinished);
        const GameRecord& record = search.record(slot);
        CHECK(record.plies() >= 4 && record.simulations[0] == 0 && record.simulations[1] == 0 && record.simulations[2] > 0);
        GameRecord half;
        half.uid = record.uid;
        for (std::size_t ply = 0; ply < 3; ++ply) {
            half.append(record.actions[ply], record.policies.data() + 2 * ply, 2, &record.root_values[ply], 1, record.simulations[ply], 1);
        }
        ManyGames<KuhnPoker> other(KuhnPoker{}, make_config(Algorithm::kPuct, 12, 1), 1, 7, true, Sharing{});
        other.start(0, std::move(half));
        run(other, 1);
        CHECK(other.record(0).actions == record.actions && other.record(0).root_values == record.root_values);
    }
}

}  // namespace

void test_infoset() {
    for (const Algorithm algorithm : {Algorithm::kGumbel, Algorithm::kPuct}) {
        test_answers_to_a_bet(algorithm);
        test_no_peeking(algorithm);
    }
    test_plain_determinization();
    test_common_random_numbers();
    test_records();
}

}  // namespace azq::test
