#include "azq/math.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "check.hpp"

namespace azq::test {
namespace {

bool close(float found, double expected) { return std::abs(static_cast<double>(found) - expected) <= 3e-7 * std::abs(expected); }

/// The value of a finite half, from its fields.
double exact(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 10) & 31;
    const double mantissa = bits & 1023;
    return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
}

void test_exp_and_log() {
    for (int i = -8690; i <= 8800; ++i) {
        const float x = static_cast<float>(i) * 0.01f;
        CHECK(close(exp32(x), std::exp(static_cast<double>(x))));
    }
    CHECK(exp32(0.0f) == 1.0f);
    CHECK(exp32(-87.5f) == 0.0f);
    CHECK(exp32(-std::numeric_limits<float>::infinity()) == 0.0f);
    CHECK(exp32(1e30f) == exp32(88.0f));
    for (std::uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 0x4321u) {
        const float x = std::bit_cast<float>(bits);
        const double expected = std::log(static_cast<double>(x));
        CHECK(close(log32(x), expected) || std::abs(static_cast<double>(log32(x)) - expected) < 1e-7);
    }
}

void test_every_half() {
    for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
        const Half half{static_cast<std::uint16_t>(bits)};
        const Half negative{static_cast<std::uint16_t>(bits | 0x8000u)};
        const float value = to_float(half);
        CHECK(static_cast<double>(value) == exact(bits));
        CHECK(to_float(negative) == -value);
        CHECK(to_half(value).bits == half.bits);
        CHECK(to_half(-value).bits == negative.bits);
    }
    CHECK(std::isinf(to_float(Half{0x7c00})) && std::isnan(to_float(Half{0x7c01})));
    CHECK(is_nan(Half{0xfe00}) && !is_nan(Half{0xfc00}));
}

void test_rounding_to_half() {
    for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {
        const float low = to_float(Half{static_cast<std::uint16_t>(bits)});
        const float high = to_float(Half{static_cast<std::uint16_t>(bits + 1)});
        const float middle = low + (high - low) * 0.5f;
        CHECK(to_half(middle).bits == (bits % 2 == 0 ? bits : bits + 1));
        CHECK(to_half(std::nextafter(middle, 0.0f)).bits == bits);
        CHECK(to_half(std::nextafter(middle, 1e9f)).bits == bits + 1);
    }
    CHECK(to_half(65519.0f).bits == 0x7bff && to_half(65520.0f).bits == 0x7c00 && to_half(1e30f).bits == 0x7c00);
    CHECK(to_half(-std::numeric_limits<float>::infinity()).bits == 0xfc00);
    CHECK(is_nan(to_half(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace

void test_math() {
    test_exp_and_log();
    test_every_half();
    test_rounding_to_half();
}

}  // namespace azq::test
