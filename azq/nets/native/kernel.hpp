/// The inner loop of the native forward pass: a tile of positions times outputs, summed over taps and channels in registers.
///
/// Only resnet.cpp includes it; the instructions are those of that file's compile options.
#pragma once

#include "resnet.hpp"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace azq::nn {

/// Vectors of the next output tile: the kernel knows 1 to 4, and 5 split better into 3 and 2.
inline int tile_vectors(int left) { return left == 5 ? 3 : std::min(left, 4); }

/// Positions a tile of that many vectors holds in 24 accumulators.
constexpr int tile_positions(int vectors) { return 24 / vectors; }

inline __m512bh as_bf16(__m512i x) { return std::bit_cast<__m512bh>(x); }

inline __m512 widen(__m256i half) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)); }

/// What a tile reads.
struct Tile {
    const std::byte* const* inputs;  // per tap: its first position's first channel
    int taps, words, stride;         // stride: bytes from one position to the next
    const std::uint32_t* weights;
    const float* bias;
};

/// Products of two bfloat16 a word, summed in float32 from the bias on.
struct Bfloat16 {
    using Sum = __m512;
    static Sum start(const float* bias) { return _mm512_loadu_ps(bias); }
    static Sum add(Sum sum, __m512i weights, __m512i inputs) { return _mm512_dpbf16_ps(sum, as_bf16(weights), as_bf16(inputs)); }
};

/// Products of four bytes a word, summed exactly; the store scales them and adds the bias.
struct Int8 {
    using Sum = __v16si;  // GCC 12 would keep an array of __m512i in memory, which costs twice the time
    static Sum start(const float*) { return Sum{}; }
    static Sum add(Sum sum, __m512i weights, __m512i inputs) {
        return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), inputs, weights));
    }
};

/// Adds a residual where there is one, applies relu, stores bfloat16. `out` and `residual` may be the same.
struct StoreRelu {
    bf16* out;
    const bf16* residual;
    int stride;

    void operator()(int position, int vector, __m512 sum) const {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes;
        if (residual) {
            const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(residual + at));
            sum = _mm512_add_ps(sum, widen(half));
        }
        const __m256bh narrow = _mm512_cvtneps_pbh(_mm512_max_ps(sum, _mm512_setzero_ps()));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), std::bit_cast<__m256i>(narrow));
    }
};

struct StoreFloat {
    float* out;
    int stride;

    void operator()(int position, int vector, __m512 sum) const {
        _mm512_storeu_ps(out + static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes, sum);
    }
};

/// Turns the sums of bytes into numbers: `scales` and `bias` of this tile's outputs, `positions` scales of its positions.
struct Rescale {
    const float *scales, *bias, *positions;
    StoreRelu store;

    void operator()(int position, int vector, __v16si sum) const {
        const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + vector * kLanes), _mm512_set1_ps(positions[position]));
        store(position, vector, _mm512_fmadd_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)), scale, _mm512_loadu_ps(bias + vector * kLanes)));
    }
};

template <class Math, int V, class Store>
void run_tile(const Tile& tile, const Store& store) {
    constexpr int P = tile_positions(V);
    typename Math::Sum sums[P][V];
#pragma GCC unroll 24
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[p][v] = Math::start(tile.bias + v * kLanes);
    const std::uint32_t* weights = tile.weights;
    for (int t = 0; t < tile.taps; ++t) {
        const std::byte* input = tile.inputs[t];
        if (!input) {
            weights += tile.words * V * kLanes;
            continue;
        }
        for (int k = 0; k < tile.words; ++k, weights += V * kLanes) {
            __m512i w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = _mm512_loadu_si512(weights + v * kLanes);
#pragma GCC unroll 24
            for (int p = 0; p < P; ++p) {
                std::int32_t word;
                std::memcpy(&word, input + static_cast<std::ptrdiff_t>(p) * tile.stride + k * 4, sizeof word);
                const __m512i x = _mm512_set1_epi32(word);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[p][v] = Math::add(sums[p][v], w[v], x);
            }
        }
    }
#pragma GCC unroll 24
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(p, v, sums[p][v]);
}

/// One output location of a layer for the first `count` positions of a group. `taps` and `stride` count in elements of type X;
/// `at(position, vector)` gives the tile's store.
template <class Math, class X, class StoreAt>
void run_layer(const Layer& layer, const X* const* taps, int stride, int count, const StoreAt& at) {
    const std::uint32_t* weights = layer.weights.data();
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        const int step = tile_positions(vectors);
        for (int p = 0; p < count; p += step) {
            const std::byte* inputs[256];
            for (int t = 0; t < layer.taps; ++t)
                inputs[t] = taps[t] ? reinterpret_cast<const std::byte*>(taps[t] + static_cast<std::ptrdiff_t>(p) * stride) : nullptr;
            const Tile tile{inputs, layer.taps, layer.words(), stride * static_cast<int>(sizeof(X)), weights, layer.bias.data() + done * kLanes};
            const auto store = at(p, done);
            switch (vectors) {
                case 1: run_tile<Math, 1>(tile, store); break;
                case 2: run_tile<Math, 2>(tile, store); break;
                case 3: run_tile<Math, 3>(tile, store); break;
                default: run_tile<Math, 4>(tile, store); break;
            }
        }
        weights += static_cast<std::ptrdiff_t>(layer.taps) * layer.words() * vectors * kLanes;
        done += vectors;
    }
}

}  // namespace azq::nn
