/// Drives a search as an actor does.
#pragma once

#include <vector>

#include "azq/any/erased_game.hpp"

namespace azq::test {

/// Collects the next leaves and lets evaluate(packed, logits, values) write each row's answer, round after round.
template <Game G>
struct Driver {
    Driver(ManyGames<G>& driven, int leaves_per_step)
        : search(driven), batch(driven.num_slots(), leaves_per_step, kPackedSize<G>),
          slots(static_cast<std::size_t>(driven.num_slots() * leaves_per_step)), packed(slots.size() * kPackedSize<G>) {}

    /// One round; false where nothing waits. The answers are applied at once, or given with the next round's collect.
    template <class Evaluate>
    bool next(bool at_once, Evaluate&& evaluate) {
        const Answers given{batch, logits.data(), values.data(), 3};
        search.collect(0, search.num_slots(), held ? &given : nullptr, packed.data(), batch.counts());
        const auto rows = static_cast<std::size_t>(batch.gather(packed.data(), slots.data(), search.names(), merged));
        logits.assign(rows * G::kNumActions, Half{});
        values.assign(rows * kValueSize<G>, Half{});
        for (std::size_t row = 0; row < rows; ++row) {
            evaluate(packed.data() + row * kPackedSize<G>, logits.data() + row * G::kNumActions, values.data() + row * kValueSize<G>);
        }
        const Answers answers{batch, logits.data(), values.data(), 3};
        search.use_version(3);
        search.remember(0, search.num_slots(), answers);
        if (at_once) search.apply(0, search.num_slots(), answers);
        held = !at_once && rows > 0;
        return rows > 0;
    }

    ManyGames<G>& search;
    Batch batch;
    std::vector<std::int32_t> slots;
    std::vector<std::uint8_t> packed;
    std::vector<Half> logits, values;
    std::uint64_t merged = 0;
    bool held = false;
};

}  // namespace azq::test
