/// Vectors as the forward pass uses them, and what each kind of CPU multiplies whole numbers with. Everything else is written once: float32
/// by lanes, without contraction, and sums of whole numbers, which are exact in any order. So all targets compute the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace azq::nn {

/// Lanes of one register: outputs that are summed at once.
#if defined(AZQ_NN_AVX512)
inline constexpr int kLanes = 16;
#elif defined(AZQ_NN_AVX2)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using Floats [[gnu::vector_size(4 * kLanes)]] = float;
using Ints [[gnu::vector_size(4 * kLanes)]] = std::int32_t;
using Wraps [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;  // sums that may pass 32 bits on their way

template <class Vector>
inline Vector load(const void* from) {
    Vector found;
    std::memcpy(&found, from, sizeof found);
    return found;
}
inline void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline float largest_of(Floats x) {
    float found = x[0];
    for (int i = 1; i < kLanes; ++i) found = found > x[i] ? found : x[i];
    return found;
}
/// Rounds numbers from 0 to 2^15 - 1 to whole ones, ties to even.
inline Ints sum_of(Ints a, Ints b) { return std::bit_cast<Ints>(std::bit_cast<Wraps>(a) + std::bit_cast<Wraps>(b)); }
inline Ints rounded(Floats x) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the whole number in the lowest bits
    return std::bit_cast<Ints>(x + kRound) - std::bit_cast<std::int32_t>(kRound);
}
template <class Quantum>
inline void store_whole(Quantum* to, Ints x) {
#if defined(AZQ_NN_AVX512)
    if constexpr (sizeof(Quantum) == 1) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(std::bit_cast<__m512i>(x)));
    } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(std::bit_cast<__m512i>(x)));
    }
#elif defined(AZQ_NN_AVX2)
    const auto all = std::bit_cast<__m256i>(x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#elif defined(__wasm_simd128__)
    const auto all = std::bit_cast<v128_t>(x);
    wasm_v128_store64_lane(to, wasm_i16x8_narrow_i32x4(all, all), 0);
#elif defined(__ARM_NEON)
    vst1_s16(to, vmovn_s32(std::bit_cast<int32x4_t>(x)));
#else
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<Quantum>(x[i]);
#endif
}

/// Products of two 16-bit numbers a word, added to the sums.
struct Words {
    using Quantum = std::int16_t;
    static Ints add(Ints sums, Ints weights, std::int32_t inputs) {
#if defined(AZQ_NN_AVX512)
        return std::bit_cast<Ints>(_mm512_dpwssd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(weights), _mm512_set1_epi32(inputs)));
#elif defined(AZQ_NN_AVX2)
        return sum_of(sums, std::bit_cast<Ints>(_mm256_madd_epi16(std::bit_cast<__m256i>(weights), _mm256_set1_epi32(inputs))));
#elif defined(__wasm_simd128__)
        return sum_of(sums, std::bit_cast<Ints>(wasm_i32x4_dot_i16x8(std::bit_cast<v128_t>(weights), wasm_i32x4_splat(inputs))));
#elif defined(__ARM_NEON)
        const auto pairs = std::bit_cast<int16x8_t>(weights), pair = vreinterpretq_s16_s32(vdupq_n_s32(inputs));
        return sum_of(sums, std::bit_cast<Ints>(vpaddq_s32(vmull_s16(vget_low_s16(pairs), vget_low_s16(pair)), vmull_high_s16(pairs, pair))));
#else
        const Ints low = (weights << 16) >> 16, high = weights >> 16;
        return sum_of(sums, sum_of(low * static_cast<std::int16_t>(inputs), high * (inputs >> 16)));
#endif
    }
};

/// Products of bytes, four a word where a CPU multiplies them so: activations without sign, weights with.
#if defined(AZQ_NN_AVX512)
struct Bytes {
    using Quantum = std::uint8_t;
    static Ints add(Ints sums, Ints weights, std::int32_t inputs) {
        return std::bit_cast<Ints>(_mm512_dpbusd_epi32(std::bit_cast<__m512i>(sums), _mm512_set1_epi32(inputs), std::bit_cast<__m512i>(weights)));
    }
};
#else
using Bytes = Words;
#endif

template <class Math>
inline constexpr int kAWord = 4 / static_cast<int>(sizeof(typename Math::Quantum));

/// Vectors of the next output tile out of those left: 1 to 4, no fewer than needed to split them evenly.
constexpr int tile_vectors(int left) {
#if defined(AZQ_NN_AVX512)
    return left == 5 ? 3 : left < 4 ? left : 4;
#elif defined(AZQ_NN_AVX2)
    return left == 4 ? 2 : left < 3 ? left : 3;
#else
    return left < 2 ? left : 2;
#endif
}
/// Positions of a tile of that many vectors: the most whose sums leave some registers to weights and inputs.
constexpr int tile_positions(int vectors) {
#if defined(AZQ_NN_AVX512)
    return 24 / vectors;
#elif defined(AZQ_NN_AVX2)
    return vectors == 1 ? 8 : vectors == 2 ? 6 : 4;
#else
    return vectors == 1 ? 8 : 4;
#endif
}

}  // namespace azq::nn
