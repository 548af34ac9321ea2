/// The inner loop of the native forward pass: a tile of positions times outputs, summed over taps and channels in registers.
///
/// Only resnet.cpp includes it; the instructions are those of that file's compile options.
#pragma once

#if defined(AZQ_NN_AVX2)
#include "avx2.hpp"
#else
#include "avx512.hpp"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace azq::nn {

/// What a tile reads.
struct Tile {
    const std::byte* const* inputs;  // per tap: its first position's first channel
    int taps, words, stride;         // stride: bytes from one position to the next
    const std::uint32_t* weights;
    const float* bias;
};

/// Adds a residual where there is one, applies relu, stores activations. `out` and `residual` may be the same.
struct StoreRelu {
    Activation* out;
    const Activation* residual;
    int stride;

    void operator()(int position, int vector, Floats sum) const {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes;
        if (residual) sum = add(sum, load(residual + at));
        store(out + at, larger(sum, zeros()));
    }
};

struct StoreFloat {
    float* out;
    int stride;

    void operator()(int position, int vector, Floats sum) const { store(out + static_cast<std::ptrdiff_t>(position) * stride + vector * kLanes, sum); }
};

/// Turns the sums of whole numbers into numbers: `scales` and `bias` of this tile's outputs, `positions` scales of its positions.
struct Rescale {
    const float *scales, *bias, *positions;
    StoreRelu store;

    void operator()(int position, int vector, Fixed::Sum sum) const {
        const Floats scale = mul(load(scales + vector * kLanes), spread(positions[position]));
        store(position, vector, fmadd(Fixed::floats(sum), scale, load(bias + vector * kLanes)));
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
            Words w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = load_words(weights + v * kLanes);
#pragma GCC unroll 24
            for (int p = 0; p < P; ++p) {
                std::int32_t word;
                std::memcpy(&word, input + static_cast<std::ptrdiff_t>(p) * tile.stride + k * 4, sizeof word);
                const Words x = spread(word);
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
