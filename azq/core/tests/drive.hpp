/// Drives a search as an actor does.
#pragma once

#include <vector>

#include "azq/any/erased_game.hpp"

namespace azq::test {

/// Collects the next leaves, lets evaluate(packed, logits, values) write each row's answer, and applies them; false where nothing waits.
template <Game G, class Evaluate>
bool step(ManyGames<G>& search, int leaves_per_step, std::uint64_t& merged, Evaluate&& evaluate) {
    const auto capacity = static_cast<std::size_t>(search.num_slots() * leaves_per_step);
    std::vector<std::uint8_t> packed(capacity * kPackedSize<G>);
    std::vector<std::int32_t> slots(capacity);
    Batch batch(search.num_slots(), leaves_per_step);
    search.collect(0, search.num_slots(), packed.data(), kPackedSize<G>, batch.counts());
    const auto rows = static_cast<std::size_t>(batch.gather(packed.data(), kPackedSize<G>, slots.data(), search.names(), merged));
    std::vector<Half> logits(rows * G::kNumActions);
    std::vector<Half> values(rows * kValueSize<G>);
    for (std::size_t row = 0; row < rows; ++row) {
        evaluate(packed.data() + row * kPackedSize<G>, logits.data() + row * G::kNumActions, values.data() + row * kValueSize<G>);
    }
    search.use_version(3);
    search.apply(0, search.num_slots(), batch, logits.data(), values.data(), 3);
    return rows > 0;
}

}  // namespace azq::test
