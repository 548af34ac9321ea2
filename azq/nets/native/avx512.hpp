/// Vectors of CPUs with AVX512-BF16 and AVX512-VNNI, as the kernel uses them: 16 outputs; whole numbers are bytes.
#pragma once

#include "resnet.hpp"

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace azq::nn {

using Floats = __m512;
using Words = __m512i;
using Activation = std::uint16_t;  // bfloat16
using Quantum = std::uint8_t;

inline constexpr Activation kOne = 0x3f80;

/// Positions a tile of that many vectors holds in 24 accumulators.
constexpr int tile_positions(int vectors) { return 24 / vectors; }
/// Vectors of the next output tile: the kernel knows 1 to 4, and 5 split better into 3 and 2.
constexpr int tile_vectors(int left) { return left == 5 ? 3 : left < 4 ? left : 4; }

inline __m512bh as_bf16(Words x) { return std::bit_cast<__m512bh>(x); }
inline Floats widen(__m256i half) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)); }

inline Words load_words(const std::uint32_t* from) { return _mm512_loadu_si512(from); }
inline Words spread(std::int32_t word) { return _mm512_set1_epi32(word); }
inline Floats spread(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* from) { return _mm512_loadu_ps(from); }
inline Floats load(const Activation* from) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))); }
inline void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
inline void store(Activation* to, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), std::bit_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats zeros() { return _mm512_setzero_ps(); }
inline float largest_of(Floats x) { return _mm512_reduce_max_ps(x); }
/// Rounds to whole numbers, which fit.
inline void store_rounded(Quantum* to, Floats x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x))); }

/// Products of two bfloat16 a word, summed in float32 from the bias on.
struct Full {
    using Sum = Floats;
    static Sum start(const float* bias) { return load(bias); }
    static Sum add(Sum sum, Words weights, Words inputs) { return _mm512_dpbf16_ps(sum, as_bf16(weights), as_bf16(inputs)); }
    static std::uint32_t bits(float x) {
        const auto all = std::bit_cast<std::uint32_t>(x);
        if ((all & 0x7fffffffU) > 0x7f800000U) return (all >> 16) | 0x40U;
        return (all + 0x7fffU + ((all >> 16) & 1U)) >> 16;
    }
};

/// Products of four bytes a word, summed exactly; the store scales them and adds the bias.
struct Fixed {
    using Sum = __v16si;  // GCC 12 would keep an array of __m512i in memory, which costs twice the time
    static constexpr int kMostWeight = 127;
    static Sum start(const float*) { return Sum{}; }
    static Sum add(Sum sum, Words weights, Words inputs) {
        return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<Words>(sum), inputs, weights));
    }
    static Floats floats(Sum sum) { return _mm512_cvtepi32_ps(reinterpret_cast<Words>(sum)); }
    static int most_activation(int) { return 255; }
};

}  // namespace azq::nn
