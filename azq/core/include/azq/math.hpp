/// exp, log and float16, the same bits on every target.
///
/// libm differs between platforms in the last bit, and one bit changes which child is visited. These use + - * / only.
/// Polynomials: Cephes (Moshier), expf and logf; relative error about 1.2e-7.
#pragma once

#include <bit>
#include <cstdint>

namespace azq {

/// e^x. 0 below -87 (before float32 becomes subnormal); x is cut at 88.
[[gnu::always_inline]] inline float exp32(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer in the low mantissa bits
    const float cut = x > 88.0f ? 88.0f : (x < -87.0f ? -87.0f : x);
    const float shifted = cut * 1.44269504088896341f + kRound;
    const float n = shifted - kRound;
    const float r = (cut - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    const auto exponent = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound) + 127u;
    const float result = p * std::bit_cast<float>(exponent << 23);
    return x < -87.0f ? 0.0f : result;
}

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

inline float to_float(Half half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
    const std::uint32_t magnitude = half.bits & 0x7fffu;
    // Shifting the fields into place leaves the exponent 112 too small; the product repairs it exactly, subnormals included.
    const float finite = std::bit_cast<float>(magnitude << 13) * 5.192296858534828e33f;  // 2^112
    const std::uint32_t special = (magnitude << 13) | 0x7f800000u;                       // infinity or NaN
    return std::bit_cast<float>((magnitude >= 0x7c00u ? special : std::bit_cast<std::uint32_t>(finite)) | sign);
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
