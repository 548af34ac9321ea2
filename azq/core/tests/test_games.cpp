#include "azq/games/connect_four.hpp"
#include "azq/games/tic_tac_toe.hpp"
#include "azq/search/uct.hpp"

#include <vector>

#include "check.hpp"

namespace azq::test {
namespace {

/// Random games: the concept's promises, and a symmetric twin that stays symmetric.
template <Game G>
void test_random_games(int games) {
    const G rules{};
    for (int number = 0; number < games; ++number) {
        Rng rng(1, static_cast<std::uint64_t>(number), 0, Purpose::kRandomGame);
        const int symmetry = number % G::kNumSymmetries;
        typename G::State state = rules.initial();
        typename G::State twin = rules.initial();
        int plies = 0;
        while (rules.actor(state) != kTerminalPlayer) {
            CHECK(rules.actor(state) == rules.mover(state) && rules.actor(twin) == rules.actor(state));
            std::uint16_t actions[G::kMaxLegal];
            const int count = rules.legal(state, actions);
            CHECK(count > 0 && count <= G::kMaxLegal);
            for (int i = 1; i < count; ++i) CHECK(actions[i - 1] < actions[i]);
            const int action = actions[rng.below(count)];
            CHECK(is_legal(rules, twin, rules.symmetric_action(symmetry, action)));
            rules.apply(state, action);
            rules.apply(twin, rules.symmetric_action(symmetry, action));
            ++plies;
        }
        CHECK(plies <= G::kMaxLength);
        CHECK(rules.returns(state, 0) == -rules.returns(state, 1));
        CHECK(rules.returns(twin, 0) == rules.returns(state, 0));
        CHECK(!is_legal(rules, state, 0));
        CHECK(!rules.text(state).empty());
        typename G::State again;
        CHECK(rules.parse(rules.notation(state), again).empty());
        CHECK(rules.notation(again) == rules.notation(state) && rules.text(again) == rules.text(state));
    }
}

template <Game G>
void test_uct_takes_the_win(const std::vector<int>& opening, int winning) {
    const G rules{};
    typename G::State state = rules.initial();
    for (const int action : opening) rules.apply(state, action);
    Uct<G> uct(rules, 300, 5, 1.414f);
    CHECK(uct.best_action(state) == winning);
    std::int32_t counts[G::kNumActions];
    uct.scores(counts);
    std::int32_t sum = 0;
    for (const std::int32_t count : counts) sum += count;
    CHECK(sum == 300);
}

}  // namespace

void test_games() {
    test_random_games<ConnectFour>(300);
    test_random_games<TicTacToe>(300);
    test_uct_takes_the_win<ConnectFour>({3, 0, 3, 0, 3, 0}, 3);
    test_uct_takes_the_win<TicTacToe>({0, 3, 1, 4}, 2);
}

}  // namespace azq::test
