#include "azq/games/beasty_bar.hpp"

#include <cstring>
#include <initializer_list>

#include "azq/search/uct.hpp"
#include "check.hpp"

namespace azq::test {
namespace {

/// What a player may see: packed observation and knowledge.
template <class G>
bool looks_equal(const G& rules, const typename G::State& a, const typename G::State& b, int player) {
    std::uint8_t packed[2][kPackedSize<G>];
    rules.observe(a, player, packed[0]);
    rules.observe(b, player, packed[1]);
    return std::memcmp(packed[0], packed[1], kPackedSize<G>) == 0 && rules.information_state(a, player) == rules.information_state(b, player);
}

template <int Players>
void test_random_tables(BarScoring scoring, int games) {
    using G = BeastyBar<Players>;
    const G rules(scoring);
    for (int number = 0; number < games; ++number) {
        Rng rng(1, static_cast<std::uint64_t>(number), 0, Purpose::kRandomGame);
        typename G::State state = rules.initial();
        int plies = 0;
        for (; rules.actor(state) != kTerminalPlayer;) {
            typename G::State again = rules.initial();
            CHECK(rules.parse(rules.notation(state), again).empty());
            CHECK(rules.notation(again) == rules.notation(state));
            const int viewer = number % Players;
            typename G::State world = state;
            rules.resample(world, viewer, rng);
            CHECK(looks_equal(rules, state, world, viewer) && looks_equal(rules, state, again, viewer));
            CHECK(rules.parse(rules.notation(world), again).empty());
            if (rules.actor(state) == kChancePlayer) {
                CHECK(rules.mover(state) == state.drawer);
                rules.apply(state, pick_outcome(rules, state, rng.uniform()));
                continue;
            }
            std::uint16_t actions[G::kMaxLegal];
            const int count = rules.legal(state, actions);
            CHECK(count > 0 && count <= G::kMaxLegal);
            for (int i = 1; i < count; ++i) CHECK(actions[i - 1] < actions[i]);
            rules.apply(state, actions[rng.below(count)]);
            ++plies;
        }
        CHECK(plies == G::kMaxLength);
        float sum = 0.0f;
        for (int player = 0; player < Players; ++player) sum += rules.returns(state, player);
        CHECK(sum > -1e-5f && sum < 1e-5f);
        CHECK(!rules.text(state).empty());
    }
}

/// Every text that begins a notation, or has one letter wrong, is refused or read; neither oversteps an array.
void test_spoilt_notations() {
    const BeastyBar<3> rules;
    Rng rng(2, 0, 0, Purpose::kRandomGame);
    BeastyBar<3>::State state = rules.initial();
    for (int ply = 0; ply < 40; ++ply) {
        std::uint16_t actions[BeastyBar<3>::kMaxLegal];
        if (rules.actor(state) == kChancePlayer) rules.apply(state, pick_outcome(rules, state, rng.uniform()));
        else rules.apply(state, actions[rng.below(rules.legal(state, actions))]);
    }
    const std::string whole = rules.notation(state);
    for (std::size_t length = 0; length < whole.size(); ++length) {
        BeastyBar<3>::State read = state;
        rules.parse(whole.substr(0, length), read);
        std::string spoilt = whole;
        spoilt[length] = "9Li -;x"[length % 7];
        rules.parse(spoilt, read);
    }
}

/// A state that ends with these bars.
BeastyBar<3>::State ended(std::initializer_list<unsigned> bars) {
    BeastyBar<3>::State state{};
    state.plies = BeastyBar<3>::kMaxLength;
    state.drawer = -1;
    int player = 0;
    for (const unsigned bar : bars) state.bar[player++] = static_cast<std::uint16_t>(bar);
    return state;
}

void test_shared_wins() {
    using namespace beasty;
    const BeastyBar<3> points;
    const BeastyBar<3> count(BarScoring::kCount);
    const auto state = ended({1u << kLion | 1u << kHippo, 1u << kSkunk, 1u << kSeal});
    CHECK(points.returns(state, 0) == 0.25f && points.returns(state, 1) == 0.25f && points.returns(state, 2) == -0.5f);
    CHECK(count.returns(state, 0) == 1.0f && count.returns(state, 1) == -0.5f);
    CHECK(points.margin(state, 2) == -2.0f / 36.0f && points.margin(state, 0) == 0.0f);
    const auto heads = ended({1u << kLion, 1u << kSkunk, 0});  // as many: the weaker ones win
    CHECK(count.returns(heads, 1) == 1.0f && count.returns(heads, 0) == -0.5f);
    const auto even = ended({1u << kLion, 1u << kLion, 1u << kLion});
    CHECK(count.returns(even, 2) == 0.0f && points.returns(even, 2) == 0.0f);
}

}  // namespace

void test_beasty_bar() {
    test_random_tables<2>(BarScoring::kPoints, 60);
    test_random_tables<3>(BarScoring::kCount, 30);
    test_random_tables<4>(BarScoring::kPoints, 30);
    test_spoilt_notations();
    test_shared_wins();
}

}  // namespace azq::test
