#include "azq/games/blob.hpp"

#include <cstring>

#include "check.hpp"

namespace azq::test {
namespace {

/// Random games through notation, observation and redrawn hands: nothing that a player knows changes, nothing he voided comes back.
template <int Players>
void test_random_blob(const BlobRules& table, int games) {
    const Blob<Players> rules(table);
    std::uint8_t seen[kPackedSize<Blob<Players>>];
    std::uint8_t again[kPackedSize<Blob<Players>>];
    for (int number = 0; number < games; ++number) {
        Rng rng(2, static_cast<std::uint64_t>(number), 0, Purpose::kRandomGame);
        auto state = rules.initial();
        while (rules.actor(state) != kTerminalPlayer) {
            typename Blob<Players>::State read;
            CHECK(rules.parse(rules.notation(state), read).empty());
            CHECK(rules.notation(read) == rules.notation(state));
            if (rules.actor(state) == kChancePlayer) {
                Outcome outcomes[Blob<Players>::kMaxOutcomes];
                const int count = rules.chance(state, outcomes);
                rules.apply(state, outcomes[rng.below(count)].outcome);
                continue;
            }
            const int player = rules.actor(state);
            auto twin = state;
            rules.resample(twin, player, rng);
            rules.observe(state, player, seen);
            rules.observe(twin, player, again);
            CHECK(std::memcmp(seen, again, sizeof seen) == 0);
            CHECK(rules.information_state(twin, player) == rules.information_state(state, player));
            CHECK(rules.parse(rules.notation(twin), read).empty());
            std::uint16_t actions[Blob<Players>::kMaxLegal];
            const int count = rules.legal(state, actions);
            CHECK(count > 0);
            rules.apply(state, actions[rng.below(count)]);
        }
        float sum = 0.0f;
        for (int player = 0; player < Players; ++player) sum += rules.returns(state, player);
        CHECK(sum >= 0.0f && sum <= static_cast<float>(Players));
    }
}

void test_broken_lines() {
    const Blob<3> rules;
    Blob<3>::State state;
    for (const char* line : {"", "|", "||||", "c5 tS d0 | / / | | |", "c5 tSS d0 |//||| 0 0 0", "x | / / | | | 0 0 0", "c5 t d | / / | | | - - -", "c5 tS d0 r9 | / / | | | 0 0 0"}) {
        CHECK(!rules.parse(line, state).empty());
    }
}

}  // namespace

void test_blob() {
    test_random_blob<3>({.cards = 5}, 20);
    test_random_blob<4>({.cards = 6, .any_cards = true, .trump = blob::kNoTrump, .hook = false}, 20);
    test_random_blob<8>({.cards = 6, .trump = 1}, 10);
    test_random_blob<4>({.cards = 3, .whole_game = true, .relative = false}, 4);
    test_broken_lines();
}

}  // namespace azq::test
