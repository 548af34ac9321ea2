#include "azq/games/backgammon.hpp"

#include <vector>

#include "azq/chance.hpp"
#include "azq/search/uct.hpp"
#include "check.hpp"

namespace azq::test {
namespace {

constexpr const char* kStart = "4HPwATDgc/ABMA";

int checkers(const backgammon::Points& points) {
    int sum = 0;
    for (const std::int8_t count : points) sum += count;
    return sum;
}

std::vector<int> legal(const Backgammon& rules, const Backgammon::State& state) {
    std::uint16_t actions[Backgammon::kMaxLegal];
    const int count = rules.legal(state, actions);
    CHECK(count > 0 && count <= Backgammon::kMaxLegal);
    for (int i = 1; i < count; ++i) CHECK(actions[i - 1] < actions[i]);
    return {actions, actions + count};
}

void check_position(const Backgammon& rules, const Backgammon::State& state) {
    Backgammon::State again{};
    CHECK(rules.parse(rules.notation(state), again).empty());
    CHECK(rules.notation(again) == rules.notation(state) && rules.actor(again) == rules.actor(state));
    std::uint8_t packed[2][kPackedSize<Backgammon>];
    rules.observe(state, 0, packed[0]);
    rules.observe(again, 0, packed[1]);
    for (int i = 0; i < kPackedSize<Backgammon>; ++i) CHECK(packed[0][i] == packed[1][i]);
}

/// Columns of checkers against the points they stand for, from both sides.
void test_columns() {
    Rng rng(1, 0, 0, Purpose::kRandomGame);
    for (int round = 0; round < 2000; ++round) {
        backgammon::Points points;
        for (std::int8_t& count : points) count = static_cast<std::int8_t>(rng.below(2) == 0 ? rng.below(4) : rng.below(16));
        const backgammon::Column own = backgammon::Column::of(points);
        const backgammon::Column other = backgammon::Column::from_other_side(points);
        std::uint8_t beyond[2][24];
        own.write_beyond_third(beyond[0]);
        other.write_beyond_third(beyond[1]);
        for (int at = 0; at < 24; ++at) {
            const int mine = points[at + 1];
            const int theirs = points[24 - at];
            for (int least = 1; least <= 15; ++least) {
                CHECK((own.at_least(least) >> at & 1) == (mine >= least ? 1u : 0u));
                CHECK((other.at_least(least) >> at & 1) == (theirs >= least ? 1u : 0u));
            }
            CHECK(beyond[0][at] == (mine > 3 ? mine - 3 : 0) && beyond[1][at] == (theirs > 3 ? theirs - 3 : 0));
            CHECK((backgammon::occupied(points) >> (at + 1) & 1) == (mine > 0 ? 1u : 0u));
            CHECK((backgammon::open_points(points) >> (at + 1) & 1) == (theirs <= 1 ? 1u : 0u));
        }
        CHECK((backgammon::occupied(points) & 1) == 0);
        CHECK(backgammon::occupied(points) >> backgammon::kBar == (points[backgammon::kBar] > 0 ? 1u : 0u));
    }
}

/// Random games from every kind of start; every position survives its notation, and nobody loses a checker.
void test_random_games(const Backgammon& rules, int games) {
    for (int number = 0; number < games; ++number) {
        Rng rng(3, static_cast<std::uint64_t>(number), 0, Purpose::kRandomGame);
        Backgammon::State state = rules.initial();
        for (int plies = 0; rules.actor(state) != kTerminalPlayer; ++plies) {
            check_position(rules, state);
            if (rules.actor(state) == kChancePlayer) {
                rules.apply(state, pick_outcome(rules, state, rng.uniform()));
                continue;
            }
            const std::vector<int> actions = legal(rules, state);
            rules.apply(state, actions[static_cast<std::size_t>(rng.below(static_cast<int>(actions.size())))]);
            for (const auto& points : state.points) CHECK(checkers(points) == backgammon::kCheckers);
        }
        check_position(rules, state);
        CHECK(rules.returns(state, 0) == -rules.returns(state, 1));
        float targets[Backgammon::kNumOutcomeTargets];
        for (int player = 0; player < 2; ++player) {
            rules.outcome_targets(state, player, targets);
            float value = rules.kOutcomeBias;
            for (int i = 0; i < Backgammon::kNumOutcomeTargets; ++i) value += rules.kOutcomeWeights[i] * targets[i];
            const float error = value - rules.returns(state, player);
            CHECK(rules.truncated(state) || (error < 1e-6f && error > -1e-6f));
        }
    }
}

void test_broken_notation() {
    const Backgammon rules;
    Backgammon::State state{};
    const std::string start = kStart;
    CHECK(rules.parse(start + ":31", state).empty());
    const std::string before = rules.notation(state);
    for (const char* tail : {"", ":", ":7", ":70", ":313", ":31:", ":31:s9", ":11:s9", ":11:u11:s26", ":11:u11:s-1", ":31:u33", ":31:t1001",
                             ":31:t99999", ":00:placing0", ":00:coin", ":00:throw:p1", ":11:u111111111111111111111111111111111111"}) {
        CHECK(!rules.parse(start + tail, state).empty());
        CHECK(rules.notation(state) == before);
    }
    for (const char* id : {"", "4HPwATDgc/ABMB:31", "4HPwATDgc/ABM/:31", "//////////////:31", "AAAAAAAAAAAAAA:31", "4HPwATDgc/AB*A:31"}) {
        CHECK(!rules.parse(id, state).empty());
    }
    const Backgammon race(Backgammon::Scoring::kFull, false, Backgammon::Start::kRace);
    CHECK(!race.parse(start + ":00:placing30", state).empty());
    CHECK(!race.parse(start + ":00:placing5", state).empty());
    CHECK(race.parse("AAAAAAAAAAAAAA:00:placing0", state).empty());
}

}  // namespace

void test_backgammon() {
    test_columns();
    using Scoring = Backgammon::Scoring;
    using Start = Backgammon::Start;
    test_random_games(Backgammon(), 40);
    test_random_games(Backgammon(Scoring::kGammons, true, Start::kRace), 40);
    test_random_games(Backgammon(Scoring::kWinLoss, false, Start::kBearOff), 40);
    test_random_games(Backgammon(Scoring::kFull, false, Start::kStandard, 7), 10);
    test_broken_notation();
}

}  // namespace azq::test
