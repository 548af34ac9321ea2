/// Beasty Bar (Zoch, 2014): twelve animals each, a queue of five, and a bar that admits two.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "azq/game.hpp"
#include "azq/games/beasty_bar/notation.hpp"
#include "azq/games/beasty_bar/state.hpp"
#include "azq/square.hpp"

namespace azq {

/// How the bar is counted: by the animals' points, or by heads (and then the lower sum of strengths).
enum class BarScoring : std::uint8_t { kPoints, kCount };

/// Actions are animals and their choices (beasty_bar/cards.hpp); outcomes of chance are the animal drawn, its strength less one.
///
/// Each player draws from a pile of his own, one card a chance node, and hands are dealt so too: four to player 0, then the
/// next. At a chance node mover() is whoever draws. Hidden is which of the others' unplayed cards they hold.
template <int Players>
struct BeastyBar {
    static_assert(Players >= 2 && Players <= 4);

    using State = beasty::State<Players>;

    static constexpr const char* kName = "beasty_bar";
    static constexpr int kNumPlayers = Players;
    static constexpr int kNumActions = beasty::kNumActions;
    static constexpr int kMaxLegal = 15;  ///< Kangaroo 2, parrot 4, chameleon 8 and another.
    static constexpr int kMaxLength = beasty::kAnimals * Players;
    static constexpr int kMaxOutcomes = beasty::kAnimals;
    static constexpr int kPlanes = 9;     ///< Queue 0..4, bar, out, own hand, not yet seen: the own pile, or another's hand and pile.
    static constexpr int kRows = 1;
    static constexpr int kColumns = beasty::kAnimals * Players;  ///< A card: twelve a seat, weakest first.
    static constexpr std::array kTokenGroups{
        tokens_by_plane("queue", kColumns, 0, beasty::kMaxQueue, 0, kColumns),  ///< A token a place, which reads whose card lies there.
        tokens_by_cell("bar", kColumns, 5, 2, 0, kColumns),                     ///< A token a card: in the bar, out.
        tokens_by_cell("hand", kColumns, 7, 2, 0, beasty::kAnimals),            ///< A token an own card: in hand, in the pile.
    };
    static constexpr int kNumScalars = 3 + 2 * Players;  ///< Queue length x 4, points by seat, plies left, hands x 4 by seat, viewer x 4.
    static constexpr int kNumSymmetries = 1;
    static constexpr int kNumHidden = beasty::kAnimals * (Players - 1);  ///< Whether seat r >= 1 holds an animal: 12 (r - 1) + animal.

    explicit BeastyBar(BarScoring scoring = BarScoring::kPoints) : scoring_(scoring) {}

    State initial() const { return State::dealing(); }
    int actor(const State& state) const { return state.actor(); }
    int mover(const State& state) const { return state.drawer >= 0 ? state.drawer : state.plies % Players; }

    int legal(const State& state, std::uint16_t* actions) const { return state.legal(actions); }

    int chance(const State& state, Outcome* outcomes) const {
        unsigned left = state.pile[state.drawer];
        const float probability = 1.0f / static_cast<float>(std::popcount(left));
        int count = 0;
        for (; left != 0; left &= left - 1) outcomes[count++] = {static_cast<std::uint16_t>(std::countr_zero(left)), probability};
        return count;
    }

    void apply(State& state, int number) const {
        if (state.drawer >= 0) state.draw(number);
        else state.play(number);
    }

    /// Winners share 1; with a share s of n players that is worth (n s - 1) / (n - 1).
    float returns(const State& state, int player) const {
        int winners = 0;
        int best = -1000;
        for (int i = 0; i < Players; ++i) {
            const int rank = rank_of(state, i);
            winners = rank > best ? 1 : winners + (rank == best);
            best = rank > best ? rank : best;
        }
        if (rank_of(state, player) < best) return -1.0f / (Players - 1);
        return (static_cast<float>(Players) / static_cast<float>(winners) - 1.0f) / (Players - 1);
    }

    /// Points ahead of the best other, of 36; or heads, of 12.
    float margin(const State& state, int player) const {
        int other = 0;
        for (int i = 0; i < Players; ++i) other = i != player && score(state, i) > other ? score(state, i) : other;
        const int most = scoring_ == BarScoring::kPoints ? beasty::kTotalPoints : beasty::kAnimals;
        return static_cast<float>(score(state, player) - other) / static_cast<float>(most);
    }

    void observe(const State& state, int player, std::uint8_t* packed) const {
        BitWriter writer(packed);
        for (int place = 0; place < beasty::kMaxQueue; ++place) {
            const bool taken = place < state.queue.length;
            const int seat = taken ? (beasty::owner_of(state.queue.cards[place]) - player + Players) % Players : 0;
            const int column = taken ? beasty::kAnimals * seat + state.queue.animal(place) : 0;
            writer.put(static_cast<std::uint64_t>(taken) << column, kColumns);
        }
        put_sets(writer, state.bar, player);
        put_sets(writer, state.out, player);
        writer.put(state.hand[player], kColumns);
        for (int seat = 0; seat < Players; ++seat) {
            const int owner = (player + seat) % Players;
            writer.put(state.pile[owner] | (seat == 0 ? 0u : state.hand[owner]), beasty::kAnimals);
        }
        write_scalars(state, player, writer.finish());
    }

    void hidden(const State& state, int player, std::uint8_t* targets) const {
        for (int seat = 1; seat < Players; ++seat) {
            const unsigned held = state.hand[(player + seat) % Players];
            for (int animal = 0; animal < beasty::kAnimals; ++animal) *targets++ = (held >> animal) & 1;
        }
    }

    void resample(State& state, int player, Rng& rng) const {
        for (int other = 0; other < Players; ++other) {
            if (other != player) state.redraw(other, rng);
        }
    }

    std::string information_state(const State& state, int player) const { return beasty::knowledge(state, player); }

    int symmetric_action(int, int action) const { return action; }
    int symmetric_cell(int, int cell) const { return cell; }

    std::string action_text(const State& state, int number) const {
        return state.drawer >= 0 ? beasty::kNames[static_cast<std::size_t>(number)] : beasty::play_text(number);
    }

    std::string text(const State& state) const {
        std::string scores;
        for (int i = 0; i < Players; ++i) scores += (i == 0 ? "" : " ") + std::to_string(score(state, i));
        return beasty::table(state) + "score " + scores + "\n";
    }

    std::string notation(const State& state) const { return beasty::notation(state); }
    std::string parse(const std::string& line, State& state) const { return beasty::parse(line, state); }

  private:
    int score(const State& state, int player) const {
        if (scoring_ == BarScoring::kCount) return std::popcount(state.bar[player]);
        return beasty::points(state.bar[player]);
    }

    /// Orders the players: a sum of strengths is at most 78.
    int rank_of(const State& state, int player) const {
        if (scoring_ == BarScoring::kPoints) return score(state, player);
        int strengths = 0;
        for (unsigned left = state.bar[player]; left != 0; left &= left - 1) strengths += std::countr_zero(left) + 1;
        return 128 * score(state, player) - strengths;
    }

    static void put_sets(BitWriter& writer, const std::uint16_t* sets, int player) {
        for (int seat = 0; seat < Players; ++seat) writer.put(sets[(player + seat) % Players], beasty::kAnimals);
    }

    void write_scalars(const State& state, int player, std::uint8_t* scalars) const {
        const auto write = [&scalars](int value) { *scalars++ = static_cast<std::uint8_t>(value); };
        write(4 * state.queue.length);
        for (int seat = 0; seat < Players; ++seat) write(beasty::points(state.bar[(player + seat) % Players]));
        write(kMaxLength - state.plies);
        for (int seat = 0; seat < Players; ++seat) write(4 * std::popcount(state.hand[(player + seat) % Players]));
        write(4 * player);
    }

    BarScoring scoring_;
};

static_assert(Game<BeastyBar<2>> && HasChance<BeastyBar<2>> && HasHidden<BeastyBar<2>>);
static_assert(HasMargin<BeastyBar<3>> && HasHiddenTargets<BeastyBar<4>> && kValueSize<BeastyBar<4>> == 4);

}  // namespace azq
