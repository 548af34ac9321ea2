#include "azq/rng.hpp"

#include <cmath>

#include "check.hpp"

namespace azq::test {
namespace {

/// Known answer of Random123 for counter and key zero.
void test_known_answer() {
    Rng rng(0, 0, 0, Purpose::kOpening);
    CHECK(rng.next() == 0x6627e8d5u);
    CHECK(rng.next() == 0xe169c58du);
    CHECK(rng.next() == 0xbc57ac4cu);
    CHECK(rng.next() == 0x9b00dbd8u);
}

void test_streams_differ() {
    const std::uint32_t first = Rng(1, 2, 3, Purpose::kGumbel).next();
    CHECK(first == Rng(1, 2, 3, Purpose::kGumbel).next());
    CHECK(first != Rng(2, 2, 3, Purpose::kGumbel).next());
    CHECK(first != Rng(1, 3, 3, Purpose::kGumbel).next());
    CHECK(first != Rng(1, 2, 4, Purpose::kGumbel).next());
    CHECK(first != Rng(1, 2, 3, Purpose::kDirichlet).next());
}

void test_gamma_moments(float alpha) {
    Rng rng(7, 0, 0, Purpose::kDirichlet);
    constexpr int kDraws = 40000;
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < kDraws; ++i) {
        const double x = static_cast<double>(rng.gamma(alpha));
        sum += x;
        squares += x * x;
    }
    const double mean = sum / kDraws;
    const double variance = squares / kDraws - mean * mean;
    const double wanted = static_cast<double>(alpha);
    CHECK(std::abs(mean - wanted) < 0.05 * wanted);
    CHECK(std::abs(variance - wanted) < 0.1 * wanted);
}

void test_gumbel_mean() {
    Rng rng(9, 1, 2, Purpose::kGumbel);
    double sum = 0.0;
    for (int i = 0; i < 40000; ++i) sum += static_cast<double>(rng.gumbel());
    CHECK(std::abs(sum / 40000 - 0.5772) < 0.03);
}

void test_ranges() {
    Rng rng(3, 1, 4, Purpose::kTemperature);
    int seen[7] = {};
    for (int i = 0; i < 7000; ++i) {
        const float u = rng.uniform();
        CHECK(u > 0.0f && u < 1.0f);
        const int n = rng.below(7);
        CHECK(n >= 0 && n < 7);
        ++seen[n];
    }
    for (const int count : seen) CHECK(count > 800 && count < 1200);
    float parts[5];
    rng.dirichlet(0.03f, 5, parts);
    float sum = 0.0f;
    for (const float part : parts) sum += part;
    CHECK(std::abs(sum - 1.0f) < 1e-5f);
}

}  // namespace

void test_rng() {
    test_known_answer();
    test_streams_differ();
    test_gamma_moments(0.3f);
    test_gamma_moments(1.0f);
    test_gamma_moments(5.0f);
    test_gumbel_mean();
    test_ranges();
}

}  // namespace azq::test
