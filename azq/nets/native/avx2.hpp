/// Vectors of CPUs with AVX2 and FMA, as the kernel uses them: 8 outputs; whole numbers have 16 bits, which multiply twice as fast as floats.
#pragma once

#include "resnet.hpp"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace azq::nn {

using Floats = __m256;
using Words = __m256i;
using Activation = float;
using Quantum = std::int16_t;

inline constexpr Activation kOne = 1.0F;

/// Positions of a tile of that many vectors: the most whose sums leave some of the 16 registers to weights and inputs.
constexpr int tile_positions(int vectors) { return vectors == 1 ? 8 : vectors == 2 ? 6 : 4; }
/// Vectors of the next output tile: the kernel knows 1 to 3, and 4 split better into 2 and 2.
constexpr int tile_vectors(int left) { return left == 4 ? 2 : left < 3 ? left : 3; }

inline Words load_words(const std::uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline Words spread(std::int32_t word) { return _mm256_set1_epi32(word); }
inline Floats spread(float x) { return _mm256_set1_ps(x); }
inline Floats load(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats fmadd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats zeros() { return _mm256_setzero_ps(); }
inline float largest_of(Floats x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// Rounds to whole numbers, which fit.
inline void store_rounded(Quantum* to, Floats x) {
    const __m256i whole = _mm256_cvtps_epi32(x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
}

/// Products of float32, summed from the bias on.
struct Full {
    using Sum = Floats;
    static Sum start(const float* bias) { return load(bias); }
    static Sum add(Sum sum, Words weights, Words inputs) { return fmadd(_mm256_castsi256_ps(weights), _mm256_castsi256_ps(inputs), sum); }
    static std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
};

/// Products of two 16-bit numbers a word, summed exactly in 32 bits; the store scales them and adds the bias.
struct Fixed {
    using Sum = __v8si;
    static constexpr int kMostWeight = 1023;
    static Sum start(const float*) { return Sum{}; }
    static Sum add(Sum sum, Words weights, Words inputs) { return sum + reinterpret_cast<Sum>(_mm256_madd_epi16(weights, inputs)); }
    static Floats floats(Sum sum) { return _mm256_cvtepi32_ps(reinterpret_cast<Words>(sum)); }
    /// The largest of which so many products with the largest weight cannot overflow their sum.
    static int most_activation(int products) { return std::min(4095, std::numeric_limits<std::int32_t>::max() / (products * kMostWeight)); }
};

}  // namespace azq::nn
