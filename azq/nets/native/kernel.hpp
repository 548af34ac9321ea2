/// The inner loop of the forward pass: a tile of positions times outputs, summed over taps and channels in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "network.hpp"
#include "vectors.hpp"

namespace azq::nn {

inline int Layer::words() const { return (inputs + (bytes ? kAWord<Bytes> : kAWord<Words>)-1) / (bytes ? kAWord<Bytes> : kAWord<Words>); }
inline int Layer::vectors() const { return (outputs + kLanes - 1) / kLanes; }

/// What a tile reads.
struct Tile {
    const std::byte* const* inputs;  // per tap: its first position's first channel
    int taps, words, stride;         // stride: bytes from one position to the next
    const std::int32_t* weights;
};

/// Turns sums into numbers and stores them; `scales` and `bias` are of this tile's outputs, `worth` and all others of its positions.
struct Store {
    const float *scales, *bias, *worth;
    float* out;
    const float* residual;  // null: none
    float* largest;         // null: without relu
    int stride;

    template <int V>
    void operator()(int position, const Ints* sums) const {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(position) * stride;
        Floats most = largest ? load<Floats>(largest + position * kLanes) : Floats{};
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            Floats y = __builtin_convertvector(sums[v], Floats) * (load<Floats>(scales + v * kLanes) * worth[position]);
            y = y + load<Floats>(bias + v * kLanes);
            if (residual) y = y + load<Floats>(residual + at + v * kLanes);
            if (largest) most = larger(most, y = larger(y, Floats{}));
            store(out + at + v * kLanes, y);
        }
        if (largest) store(largest + position * kLanes, most);
    }
};

template <class Math, int V, class Finish>
void run_tile(const Tile& tile, const Finish& finish) {
    constexpr int P = tile_positions(V);
    Ints sums[P][V] = {};
    const std::int32_t* weights = tile.weights;
    for (int t = 0; t < tile.taps; ++t) {
        const std::byte* input = tile.inputs[t];
        if (!input) {
            weights += tile.words * V * kLanes;
            continue;
        }
        for (int k = 0; k < tile.words; ++k, weights += V * kLanes) {
            Ints w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = load<Ints>(weights + v * kLanes);
#pragma GCC unroll 24
            for (int p = 0; p < P; ++p) {
                const auto word = load<std::int32_t>(input + static_cast<std::ptrdiff_t>(p) * tile.stride + k * 4);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[p][v] = Math::add(sums[p][v], w[v], word);
            }
        }
    }
#pragma GCC unroll 24
    for (int p = 0; p < P; ++p) finish.template operator()<V>(p, sums[p]);
}

/// A tile of 1 to 4 vectors.
template <class Math, class Finish>
void run_tile_of(int vectors, const Tile& tile, const Finish& finish) {
    switch (vectors) {
        case 1: run_tile<Math, 1>(tile, finish); break;
        case 2: run_tile<Math, 2>(tile, finish); break;
        case 3: run_tile<Math, 3>(tile, finish); break;
        default: run_tile<Math, 4>(tile, finish); break;
    }
}

/// One output location of a layer for the first `count` positions of a group. `taps` and `stride` count in whole numbers; `all` stores
/// the first tile.
template <class Math>
void run_layer(const Layer& layer, const typename Math::Quantum* const* taps, int stride, int count, const Store& all) {
    const std::int32_t* weights = layer.weights.data();
    for (int done = 0; done < layer.vectors();) {
        const int vectors = tile_vectors(layer.vectors() - done);
        const int step = tile_positions(vectors), first = done * kLanes;
        for (int p = 0; p < count; p += step) {
            const std::byte* inputs[256];
            for (int t = 0; t < layer.taps; ++t)
                inputs[t] = taps[t] ? reinterpret_cast<const std::byte*>(taps[t] + static_cast<std::ptrdiff_t>(p) * stride) : nullptr;
            const Tile tile{inputs, layer.taps, layer.words(), stride * static_cast<int>(sizeof(typename Math::Quantum)), weights};
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(p) * all.stride + first;
            const Store finish{all.scales + first,
                               all.bias + first,
                               all.worth + p,
                               all.out + at,
                               all.residual ? all.residual + at : nullptr,
                               all.largest ? all.largest + p * kLanes : nullptr,
                               all.stride};
            run_tile_of<Math>(vectors, tile, finish);
        }
        weights += static_cast<std::ptrdiff_t>(layer.taps) * layer.words() * vectors * kLanes;
        done += vectors;
    }
}

}  // namespace azq::nn
