/// exp, log and float16, the same bits on every target.
///
/// libm differs between platforms in the last bit, and one bit changes which child is visited. These use + - * / only.
/// Polynomials: Cephes (Moshier), expf and logf; relative error about 1.2e-7.
#pragma once

#include <bit>
#include <cstdint>

#include "azq/lanes.hpp"

namespace azq {

/// exp32 of a number or of lanes of them.
template <class Word, class Real>
[[gnu::always_inline]] inline Real exp_of(Real x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer in the low mantissa bits
    const Real most = Real{} + 88.0f;
    const Real least = Real{} - 87.0f;
    const Real low = x < least ? least : x;
    const Real cut = low > most ? most : low;
    const Real shifted = cut * 1.44269504088896341f + kRound;
    const Real n = shifted - kRound;
    const Real r = (cut - n * 0.693359375f) + n * 2.12194440e-4f;
    Real p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    const Word exponent = std::bit_cast<Word>(shifted) - std::bit_cast<std::uint32_t>(kRound) + 127u;
    const Real result = p * std::bit_cast<Real>(exponent << 23);
    return x < least ? Real{} : result;
}

/// e^x. 0 below -87 (before float32 becomes subnormal); x is cut at 88.
[[gnu::always_inline]] inline float exp32(float x) { return exp_of<std::uint32_t>(x); }
[[gnu::always_inline]] inline Floats exp32(Floats x) { return exp_of<Words>(x); }

/// Natural logarithm of a positive normal float.
inline float log32(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    int exponent = static_cast<int>(bits >> 23) - 126;
    float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // in [0.5, 1)
    if (m < 0.707106781186547524f) {
        exponent -= 1;
        m = m + m - 1.0f;
    } else {
        m = m - 1.0f;
    }
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = p * m * z;
    const float e = static_cast<float>(exponent);
    y = y - 2.12194440e-4f * e;
    y = y - 0.5f * z;
    return (m + y) + 0.693359375f * e;
}

/// IEEE 754 binary16, as it travels; all arithmetic is float32.
struct Half {
    std::uint16_t bits;
};

/// to_float of a number's bits or of lanes of them.
template <class Real, class Word>
[[gnu::always_inline]] inline Real real_of(Word bits) {
    const Word sign = (bits & 0x8000u) << 16;
    const Word magnitude = bits & 0x7fffu;
    // Shifting the fields into place leaves the exponent 112 too small; the product repairs it exactly, subnormals included.
    const Real finite = std::bit_cast<Real>(magnitude << 13) * 5.192296858534828e33f;  // 2^112
    const Word special = (magnitude << 13) | 0x7f800000u;                              // infinity or NaN
    return std::bit_cast<Real>((magnitude >= 0x7c00u ? special : std::bit_cast<Word>(finite)) | sign);
}

inline float to_float(Half half) { return real_of<float>(std::uint32_t{half.bits}); }

/// Those of four places.
[[gnu::always_inline]] inline Floats to_floats(const Half* halves, const std::uint16_t* at) {
    return real_of<Floats>(Words{halves[at[0]].bits, halves[at[1]].bits, halves[at[2]].bits, halves[at[3]].bits});
}

/// Rounds to nearest, ties to even, as numpy does.
inline Half to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude >= 0x7f800000u) {
        half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u;  // rounds beyond 65504
    } else if (magnitude >= 0x38800000u) {
        const std::uint32_t odd = (magnitude >> 13) & 1u;
        half = (magnitude - 0x38000000u + 0x0fffu + odd) >> 13;
    } else {
        // Subnormal half: adding 0.5 puts its unit, 2^-24, at the last mantissa bit, where the addition itself rounds.
        const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
        half = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
    }
    return Half{static_cast<std::uint16_t>(sign | half)};
}

inline bool is_nan(Half half) { return (half.bits & 0x7fffu) > 0x7c00u; }

}  // namespace azq
