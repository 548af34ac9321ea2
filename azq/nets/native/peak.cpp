/// The most that a forward pass could multiply: its own instructions, with everything in registers.
#include "peak.hpp"

#include "network.hpp"
#include "vectors.hpp"

namespace azq::nn {

std::int64_t multiply(std::int64_t rounds) {
    constexpr int kSums = tile_positions(1), kWeights = kSums < 16 ? kSums : 4;  // what differs cannot be computed once for all
    Ints sums[kSums], weights[kWeights], total{};
    for (int i = 0; i < kSums; ++i) sums[i] = Ints{} + i;
    for (int i = 0; i < kWeights; ++i) weights[i] = Ints{} + (i + 1);
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
        for (int i = 0; i < kSums; ++i) sums[i] = Bytes::add(sums[i], weights[i % kWeights], static_cast<std::int32_t>(round));
    }
    for (const Ints& sum : sums) total += sum;
    volatile const std::int32_t kept = total[0];  // else nothing above need be done
    static_cast<void>(kept);
    return rounds * kSums * kLanes * kAWord<Bytes>;
}

}  // namespace azq::nn
