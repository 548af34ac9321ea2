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

    /// What stores from a position and an output on.
    Store from(int position, int output) const {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(position) * stride + output;
        return {scales + output, bias + output, worth + position, out + at, residual ? residual + at : nullptr,
                largest ? largest + position * kLanes : nullptr, stride};
    }

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

/// Runs what is made for a number of vectors, of 1 to 4.
template <class Run>
void with_vectors(int vectors, const Run& run) {
    switch (vectors) {
        case 1: run.template operator()<1>(); break;
        case 2: run.template operator()<2>(); break;
        case 3: run.template operator()<3>(); break;
        default: run.template operator()<4>(); break;
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
            with_vectors(vectors, [&]<int V> { run_tile<Math, V>(tile, all.from(p, first)); });
        }
        weights += static_cast<std::ptrdiff_t>(layer.taps) * layer.words() * vectors * kLanes;
        done += vectors;
    }
}

/// A layer without taps for positions whose numbers are mostly 0: only words that hold another one are multiplied.
inline void run_sparse(const Layer& layer, const std::int16_t* inputs, int stride, int count, const Store& all) {
    std::vector<int> places(static_cast<std::size_t>(layer.words()));
    for (int p = 0; p < count; ++p, inputs += stride) {
        std::size_t held = 0;
        const auto word = [&](int place) { return load<std::int32_t>(inputs + 2 * place); };
        for (int place = 0; place < layer.words(); ++place)
            if (word(place)) places[held++] = place;
        const std::int32_t* weights = layer.weights.data();
        for (int done = 0; done < layer.vectors();) {
            const int vectors = tile_vectors(layer.vectors() - done);
            with_vectors(vectors, [&]<int V> {
                Ints sums[V] = {};
                for (std::size_t i = 0; i < held; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < V; ++v)
                        sums[v] = Words::add(sums[v], load<Ints>(weights + (places[i] * V + v) * kLanes), word(places[i]));
                all.from(p, done * kLanes).template operator()<V>(0, sums);
            });
            weights += static_cast<std::ptrdiff_t>(layer.words()) * vectors * kLanes;
            done += vectors;
        }
    }
}

}  // namespace azq::nn
