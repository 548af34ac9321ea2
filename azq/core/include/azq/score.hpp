/// Scores of games for one player as values in [-1, 1], by a fixed scale that the game declares.
///
/// A fixed scale and no running one, so that a record means the same whenever it is read, whoever replays or recomputes it. What a
/// running scale is for, telling good from better where all scores at hand are near each other, is done where values are used:
/// the search by the range of q that it sees (`q_range`), the learner by the spread of its targets.
#pragma once

#include "azq/math.hpp"
#include "azq/search/value.hpp"

namespace azq {

/// Scores from `low` to `high`. With a `step` above 0 they are compressed by log(1 + (score - low) / step), so that beyond a few steps
/// it is proportions that count.
struct ScoreScale {
    float low;
    float high;
    float step;

    float value(float score) const {
        const float above = clamp(score, low, high) - low;
        const float share = step > 0.0f ? log32(1.0f + above / step) / log32(1.0f + (high - low) / step) : above / (high - low);
        return clamp(2.0f * share - 1.0f, -1.0f, 1.0f);
    }
};

}  // namespace azq
