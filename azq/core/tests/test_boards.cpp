#include "azq/games/gomoku.hpp"
#include "azq/games/hex.hpp"
#include "azq/games/othello.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"

namespace azq::test {
namespace {

template <Game G>
using Packed = std::array<std::uint8_t, static_cast<std::size_t>(kPackedSize<G>)>;

/// The observation, which must fill its bytes and no more.
template <Game G>
Packed<G> observed(const G& rules, const typename G::State& state, int player) {
    constexpr auto kSize = static_cast<std::size_t>(kPackedSize<G>);
    std::uint8_t bytes[kSize + 1];
    bytes[kSize] = 0xA5;
    rules.observe(state, player, bytes);
    CHECK(bytes[kSize] == 0xA5);
    Packed<G> packed;
    std::memcpy(packed.data(), bytes, kSize);
    return packed;
}

template <Game G>
std::vector<int> legal_of(const G& rules, const typename G::State& state) {
    std::uint16_t actions[G::kMaxLegal];
    const int count = rules.actor(state) == kTerminalPlayer ? 0 : rules.legal(state, actions);
    CHECK(count <= G::kMaxLegal);
    for (int i = 1; i < count; ++i) CHECK(actions[i - 1] < actions[i]);
    return {actions, actions + count};
}

template <Game G>
bool alike(const G& rules, const typename G::State& one, const typename G::State& other) {
    return rules.actor(one) == rules.actor(other) && rules.text(one) == rules.text(other) && legal_of(rules, one) == legal_of(rules, other) &&
           rules.returns(one, 0) == rules.returns(other, 0) && observed(rules, one, 0) == observed(rules, other, 0) &&
           observed(rules, one, 1) == observed(rules, other, 1);
}

/// A line with one character changed, dropped or doubled is read as some position, or refused and nothing is written.
template <Game G>
void test_misspelt(const G& rules, const typename G::State& state, Rng& rng) {
    static constexpr char kCharacters[] = "xo./ 0123456789a";
    std::string line = rules.notation(state);
    const auto at = static_cast<std::size_t>(rng.below(static_cast<int>(line.size())));
    const int change = rng.below(3);
    if (change == 0) line[at] = kCharacters[rng.below(static_cast<int>(sizeof kCharacters) - 1)];
    if (change == 1) line.erase(at, 1);
    if (change == 2) line.insert(at, 1, line[at]);
    typename G::State read = rules.initial();
    const std::string broken = rules.parse(line, read);
    if (!broken.empty()) {
        CHECK(alike(rules, read, rules.initial()));
        return;
    }
    typename G::State again;
    CHECK(rules.parse(rules.notation(read), again).empty());
    CHECK(alike(rules, read, again));
}

/// Random games: `check(before, action, after)` sees every ply.
template <Game G, class Check>
void walk(const G& rules, int games, Check&& check) {
    for (int number = 0; number < games; ++number) {
        Rng rng(2, static_cast<std::uint64_t>(number), 0, Purpose::kRandomGame);
        typename G::State state = rules.initial();
        int plies = 0;
        for (; rules.actor(state) != kTerminalPlayer; ++plies) {
            CHECK(rules.actor(state) == rules.mover(state));
            const std::vector<int> actions = legal_of(rules, state);
            CHECK(!actions.empty());
            const int action = actions[static_cast<std::size_t>(rng.below(static_cast<int>(actions.size())))];
            const typename G::State before = state;
            rules.apply(state, action);
            check(before, action, state);
            typename G::State again;
            CHECK(rules.parse(rules.notation(state), again).empty());
            CHECK(alike(rules, state, again));
            test_misspelt(rules, state, rng);
        }
        CHECK(plies <= G::kMaxLength);
        CHECK(rules.returns(state, 0) == -rules.returns(state, 1));
    }
}

/// Positions after `depth` plies, counted along every way to them.
template <Game G>
int perft(const G& rules, const typename G::State& state, int depth) {
    if (depth == 0) return 1;
    int count = 0;
    for (const int action : legal_of(rules, state)) {
        typename G::State next = state;
        rules.apply(next, action);
        count += perft(rules, next, depth - 1);
    }
    return count;
}

template <int Size>
typename Othello<Size>::State turned(const typename Othello<Size>::State& state, int symmetry) {
    typename Othello<Size>::State image = state;
    image.own = image.other = 0;
    for (int cell = 0; cell < Size * Size; ++cell) {
        const int source = Othello<Size>{}.symmetric_cell(symmetry, cell);
        image.own |= ((state.own >> source) & 1) << cell;
        image.other |= ((state.other >> source) & 1) << cell;
    }
    return image;
}

template <int Size>
void test_othello() {
    const Othello<Size> rules;
    int ply = 0;
    walk(rules, 100, [&](const auto& before, int action, const auto& after) {
        const int symmetry = ply++ % 8;
        auto image = turned<Size>(before, symmetry);
        CHECK(is_legal(rules, image, rules.symmetric_action(symmetry, action)));
        rules.apply(image, rules.symmetric_action(symmetry, action));
        CHECK(alike(rules, image, turned<Size>(after, symmetry)));
        CHECK(rules.margin(after, 0) == -rules.margin(after, 1));
    });
}

/// The numbers of move sequences that Othello programs agree on.
void test_othello_sequences() {
    const int known[] = {1, 4, 12, 56, 244, 1396, 8200};
    for (int depth = 0; depth < 7; ++depth) CHECK(perft(Othello<8>{}, Othello<8>{}.initial(), depth) == known[depth]);
}

/// The longest line there is, in every direction: six discs turn.
void test_othello_longest_line() {
    const Othello<8> rules;
    auto state = rules.initial();
    CHECK(rules.parse("xoooooo1/1o6/2o5/3ox3/3xo3/8/8/8 x", state).empty());
    for (int symmetry = 0; symmetry < 8; ++symmetry) {
        auto image = turned<8>(state, symmetry);
        const int action = rules.symmetric_action(symmetry, 7);
        CHECK(is_legal(rules, image, action));
        rules.apply(image, action);
        CHECK(std::popcount(image.other) == 10 && std::popcount(image.own) == 4);
    }
}

/// From an empty board an image of a game is a game.
template <Game G>
void test_images(const G& rules, int games) {
    typename G::State image = rules.initial();
    int symmetry = 0;
    walk(rules, games, [&](const auto& before, int action, const auto& after) {
        if (rules.notation(before) == rules.notation(rules.initial())) {
            image = rules.initial();
            symmetry = (symmetry + 1) % G::kNumSymmetries;
        }
        CHECK(is_legal(rules, image, rules.symmetric_action(symmetry, action)));
        rules.apply(image, rules.symmetric_action(symmetry, action));
        CHECK(rules.actor(image) == rules.actor(after) && rules.returns(image, 0) == rules.returns(after, 0));
    });
}

/// Whether player 0 wins with these cells; player 1 answers at the far end of the board, every second column of two rows.
bool wins(const Gomoku<9>& rules, const std::vector<std::pair<int, int>>& cells) {
    Gomoku<9>::State state = rules.initial();
    int answer = 0;
    for (const auto& [row, column] : cells) {
        if (rules.actor(state) == kTerminalPlayer) return false;  // too early
        rules.apply(state, 9 * row + column);
        if (rules.actor(state) != kTerminalPlayer) rules.apply(state, 9 * (7 + answer / 4) + 2 * (answer % 4));
        ++answer;
    }
    return rules.actor(state) == kTerminalPlayer && rules.returns(state, 0) == 1.0f;
}

void test_gomoku_lines() {
    const Gomoku<9> free;
    const Gomoku<9> exact(true);
    CHECK(wins(free, {{0, 0}, {0, 1}, {0, 3}, {0, 4}, {0, 2}}));
    CHECK(wins(free, {{0, 8}, {1, 8}, {2, 8}, {3, 8}, {4, 8}}));
    CHECK(wins(exact, {{0, 8}, {1, 7}, {2, 6}, {3, 5}, {4, 4}}));
    CHECK(!wins(free, {{0, 7}, {0, 8}, {1, 0}, {1, 1}, {1, 2}}));  // not round the edge
    CHECK(!wins(free, {{0, 6}, {1, 7}, {2, 8}, {4, 0}, {5, 1}}));
    CHECK(wins(free, {{0, 0}, {0, 1}, {0, 2}, {0, 4}, {0, 5}, {0, 3}}));
    CHECK(!wins(exact, {{0, 0}, {0, 1}, {0, 2}, {0, 4}, {0, 5}, {0, 3}}));
    CHECK(wins(exact, {{0, 0}, {0, 1}, {0, 2}, {0, 4}, {0, 5}, {1, 3}, {2, 3}, {3, 3}, {4, 3}, {0, 3}}));  // six across, but five down
}

/// Whether a player's stones join his edges, by a search from one of them, cell by cell.
template <int Size, bool Swap>
bool joins(const typename Hex<Size, Swap>::State& state, int player) {
    constexpr int kSteps[6][2] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}, {1, -1}, {-1, 1}};
    const auto stone = [&](int row, int column) { return ((state.stones[player][row] >> column) & 1) != 0; };
    bool seen[Size][Size] = {};
    std::vector<std::pair<int, int>> open;
    for (int along = 0; along < Size; ++along) open.emplace_back(player == 0 ? 0 : along, player == 0 ? along : 0);
    while (!open.empty()) {
        const auto [row, column] = open.back();
        open.pop_back();
        if (row < 0 || row >= Size || column < 0 || column >= Size || seen[row][column] || !stone(row, column)) continue;
        if ((player == 0 ? row : column) == Size - 1) return true;
        seen[row][column] = true;
        for (const auto& step : kSteps) open.emplace_back(row + step[0], column + step[1]);
    }
    return false;
}

template <int Size, bool Swap>
void test_hex(int games) {
    const Hex<Size, Swap> rules;
    walk(rules, games, [&](const auto&, int, const auto& after) {
        for (int player = 0; player < 2; ++player) CHECK((after.winner == player) == (joins<Size, Swap>(after, player)));
    });
    test_images(rules, games);
}

void test_hex_swap() {
    const Hex<5, true> rules;
    auto state = rules.initial();
    CHECK(!is_legal(rules, state, 25));
    rules.apply(state, 1);
    CHECK(is_legal(rules, state, 25));
    const auto may_steal = observed(rules, state, 1);
    CHECK(may_steal != observed(Hex<5, true>{}, rules.initial(), 1));
    rules.apply(state, 25);
    CHECK(rules.notation(state) == "5/o4/5/5/5 x swapped");
    CHECK(rules.actor(state) == 0 && !is_legal(rules, state, 25));
}

}  // namespace

void test_boards() {
    test_othello<6>();
    test_othello<8>();
    test_othello_sequences();
    test_othello_longest_line();
    test_images(Gomoku<9>{}, 40);
    test_images(Gomoku<15>(true), 8);
    test_gomoku_lines();
    test_hex<5, false>(60);
    test_hex<5, true>(60);
    test_hex<11, false>(6);
    test_hex_swap();
}

}  // namespace azq::test
