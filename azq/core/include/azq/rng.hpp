/// Counter-based random numbers, keyed by (run seed, game uid, ply, purpose).
///
/// A draw depends on its key alone, not on what was drawn before it elsewhere: a game that another worker takes over goes on
/// with the numbers the first would have used. Generator: Philox4x32-10 (Salmon et al., SC 2011, section 3.3).
/// The std::*_distribution classes differ between standard libraries, so the distributions are here too.
#pragma once

#include <cmath>
#include <cstdint>

#include "azq/math.hpp"

namespace azq {

/// What numbers are drawn for; each purpose has its own stream within a ply.
enum class Purpose : std::uint32_t {
    kOpening = 0,
    kDirichlet = 1,
    kGumbel = 2,
    kTemperature = 3,
    kRandomGame = 4,
    kUct = 5,
    kOpeningLength = 6,
    kChance = 7,    ///< What chance does in the game itself.
    kSample = 8,    ///< What simulations draw: hidden hands and chance.
    kResample = 9,  ///< A caller's own determinizations.
    kPimc = 10,
};

class Rng {
  public:
    /// One stream. Counter words: uid (2), ply, and purpose << 24 | block; key: seed (2).
    Rng(std::uint64_t seed, std::uint64_t uid, std::uint32_t ply, Purpose purpose)
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          counter_{static_cast<std::uint32_t>(uid), static_cast<std::uint32_t>(uid >> 32), ply,
                   static_cast<std::uint32_t>(purpose) << 24} {}

    /// Passes over so many blocks of four numbers; before the first draw.
    void skip(std::uint32_t blocks) { counter_[3] += blocks; }

    std::uint32_t next() {
        if (used_ == 4) {
            fill_block();
            used_ = 0;
        }
        return block_[used_++];
    }

    /// In the open interval (0, 1): 23 bits and a half step, exact in float32.
    float uniform() { return (static_cast<float>(next() >> 9) + 0.5f) * 1.1920928955078125e-7f; }

    /// In [0, bound): the high word of a product; its bias is below bound / 2^32.
    int below(int bound) { return static_cast<int>((static_cast<std::uint64_t>(next()) * static_cast<std::uint32_t>(bound)) >> 32); }

    /// Standard Gumbel.
    float gumbel() { return -log32(-log32(uniform())); }

    /// Standard normal, by Marsaglia's polar method (needs no sine).
    float normal() {
        for (;;) {
            const float u = 2.0f * uniform() - 1.0f;
            const float v = 2.0f * uniform() - 1.0f;
            const float s = u * u + v * v;
            if (s < 1.0f && s > 1.17549435e-38f) return u * std::sqrt(-2.0f * log32(s) / s);
        }
    }

    /// Gamma with unit scale: Marsaglia and Tsang, ACM TOMS 26 (2000); for alpha < 1 their boost U^(1/alpha).
    float gamma(float alpha) {
        if (alpha < 1.0f) {
            const float boost = exp32(log32(uniform()) / alpha);
            return gamma(alpha + 1.0f) * boost;
        }
        const float d = alpha - 0.33333334f;
        const float c = 1.0f / std::sqrt(9.0f * d);
        for (;;) {
            const float x = normal();
            const float t = 1.0f + c * x;
            if (t <= 0.0f) continue;
            const float v = t * t * t;
            if (log32(uniform()) < 0.5f * x * x + d - d * v + d * log32(v)) return d * v;
        }
    }

    /// Symmetric Dirichlet of `count` parts; equal parts should every gamma underflow.
    void dirichlet(float alpha, int count, float* parts) {
        float sum = 0.0f;
        for (int i = 0; i < count; ++i) {
            parts[i] = gamma(alpha);
            sum += parts[i];
        }
        for (int i = 0; i < count; ++i) parts[i] = sum > 0.0f ? parts[i] / sum : 1.0f / static_cast<float>(count);
    }

  private:
    void fill_block() {
        std::uint32_t x[4] = {counter_[0], counter_[1], counter_[2], counter_[3]};
        std::uint32_t k0 = key_[0];
        std::uint32_t k1 = key_[1];
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t a = static_cast<std::uint64_t>(0xD2511F53u) * x[0];
            const std::uint64_t b = static_cast<std::uint64_t>(0xCD9E8D57u) * x[2];
            const std::uint32_t y0 = static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ k0;
            const std::uint32_t y2 = static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ k1;
            x[1] = static_cast<std::uint32_t>(b);
            x[3] = static_cast<std::uint32_t>(a);
            x[0] = y0;
            x[2] = y2;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int i = 0; i < 4; ++i) block_[i] = x[i];
        counter_[3] += 1;
    }

    std::uint32_t key_[2];
    std::uint32_t counter_[4];
    std::uint32_t block_[4] = {};
    int used_ = 4;
};

}  // namespace azq
