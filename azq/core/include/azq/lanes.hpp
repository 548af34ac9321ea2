/// Four numbers at once. Vector types of GCC and Clang: each lane computes what a lone number would, on every target.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace azq {

inline constexpr int kLanes = 4;

/// So many numbers and pads.
constexpr int whole_lanes(int count) { return (count + kLanes - 1) & ~(kLanes - 1); }

using Floats [[gnu::vector_size(16)]] = float;
using Ints [[gnu::vector_size(16)]] = std::int32_t;
using Words [[gnu::vector_size(16)]] = std::uint32_t;
using Shorts [[gnu::vector_size(8)]] = std::uint16_t;

[[gnu::always_inline]] inline Floats in_all(float number) { return Floats{number, number, number, number}; }

template <class Lanes, class Number>
[[gnu::always_inline]] inline Lanes load(const Number* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

[[gnu::always_inline]] inline Ints load_shorts(const std::uint16_t* from) { return __builtin_convertvector(load<Shorts>(from), Ints); }
[[gnu::always_inline]] inline Floats to_floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }
template <class Lanes, class Number>
[[gnu::always_inline]] inline void store(Number* to, Lanes lanes) {
    std::memcpy(to, &lanes, sizeof lanes);
}

/// The numbers of the lanes that start at `first`.
[[gnu::always_inline]] inline Ints lanes_from(int first) { return Ints{first, first + 1, first + 2, first + 3}; }

/// Pairs first, so that every target adds alike.
[[gnu::always_inline]] inline float sum_of(Floats lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }
[[gnu::always_inline]] inline std::int32_t sum_of(Ints lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

[[gnu::always_inline]] inline Floats larger_of(Floats a, Floats b) { return a > b ? a : b; }
[[gnu::always_inline]] inline Floats smaller_of(Floats a, Floats b) { return a < b ? a : b; }
[[gnu::always_inline]] inline Ints smaller_of(Ints a, Ints b) { return a < b ? a : b; }
[[gnu::always_inline]] inline Ints larger_of(Ints a, Ints b) { return a > b ? a : b; }

/// In every lane the largest of all, or the smallest.
template <class Lanes>
[[gnu::always_inline]] inline Lanes spread_largest(Lanes lanes) {
    const Lanes pairs = larger_of(lanes, Lanes{lanes[2], lanes[3], lanes[0], lanes[1]});
    return larger_of(pairs, Lanes{pairs[1], pairs[0], pairs[3], pairs[2]});
}
[[gnu::always_inline]] inline Ints spread_smallest(Ints lanes) {
    const Ints pairs = smaller_of(lanes, Ints{lanes[2], lanes[3], lanes[0], lanes[1]});
    return smaller_of(pairs, Ints{pairs[1], pairs[0], pairs[3], pairs[2]});
}

/// Finds the largest of many scores; of equal ones the first.
class FirstLargest {
  public:
    [[gnu::always_inline]] void take(int first, Floats scores) {
        const Ints larger = scores > best_;
        best_ = larger ? scores : best_;
        at_ = larger ? lanes_from(first) : at_;
    }

    [[gnu::always_inline]] int at() const {
        const Ints nowhere = Ints{} + std::numeric_limits<std::int32_t>::max();
        return spread_smallest(best_ == spread_largest(best_) ? at_ : nowhere)[0];
    }

  private:
    Floats best_ = in_all(-std::numeric_limits<float>::infinity());
    Ints at_ = {};
};

}  // namespace azq
