#include "azq/lanes.hpp"

#include <bit>
#include <vector>

#include "azq/math.hpp"
#include "azq/rng.hpp"
#include "azq/square.hpp"
#include "check.hpp"

namespace azq::test {
namespace {

bool same_bits(float one, float other) { return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other); }

/// exp32 and to_float of four numbers are those of each.
void test_lanes_compute_what_numbers_do() {
    Rng rng(1, 2, 3, Purpose::kRandomGame);
    for (int round = 0; round < 20000; ++round) {
        Floats x{};
        for (int lane = 0; lane < kLanes; ++lane) x[lane] = 400.0f * (rng.uniform() - 0.5f);
        const Floats together = exp32(x);
        for (int lane = 0; lane < kLanes; ++lane) CHECK(same_bits(together[lane], exp32(x[lane])));
    }
    std::vector<Half> halves;
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) halves.push_back(Half{static_cast<std::uint16_t>(bits)});
    for (std::uint32_t first = 0; first <= 0xffffu; first += kLanes) {
        std::uint16_t backwards[kLanes];
        for (std::uint32_t i = 0; i < kLanes; ++i) backwards[i] = static_cast<std::uint16_t>(first + kLanes - 1 - i);
        const Floats together = to_floats(halves.data(), backwards);
        for (int lane = 0; lane < kLanes; ++lane) CHECK(same_bits(together[lane], to_float(halves[backwards[lane]])));
    }
}

/// Few different scores, so that most rounds have ties in one vector and across several.
void test_first_largest() {
    Rng rng(4, 5, 6, Purpose::kRandomGame);
    for (int round = 0; round < 20000; ++round) {
        const int count = whole_lanes(1 + rng.below(20));
        std::vector<float> scores;
        for (int i = 0; i < count; ++i) scores.push_back(static_cast<float>(rng.below(4)) - 2.0f);
        int expected = 0;
        for (int i = 1; i < count; ++i) expected = scores.data()[i] > scores.data()[expected] ? i : expected;
        FirstLargest best;
        for (int i = 0; i < count; i += kLanes) best.take(i, load<Floats>(scores.data() + i));
        CHECK(best.at() == expected);
    }
}

/// Planes of any width are the bits one after another, and not a byte more is written.
void test_bit_writer() {
    Rng rng(7, 8, 9, Purpose::kRandomGame);
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::uint8_t> expected(64, 0);
        std::vector<std::uint8_t> bytes(65, 0xA5);
        BitWriter writer(bytes.data());
        std::size_t written = 0;
        for (int plane = rng.below(9); plane > 0; --plane) {
            const int count = 1 + rng.below(rng.below(2) == 0 ? 64 : 8);
            const std::uint64_t bits = std::uint64_t{rng.next()} << 32 | rng.next();
            writer.put(bits, count);
            for (int bit = 0; bit < count; ++bit, ++written) {
                const auto set = static_cast<unsigned>(bits >> bit & 1);
                expected[written / 8] = static_cast<std::uint8_t>(expected[written / 8] | set << written % 8);
            }
        }
        const std::size_t size = (written + 7) / 8;
        CHECK(writer.finish() == bytes.data() + size);
        for (std::size_t at = 0; at < size; ++at) CHECK(bytes[at] == expected[at]);
        CHECK(bytes[size] == 0xA5);
    }
}

}  // namespace

void test_lanes() {
    test_lanes_compute_what_numbers_do();
    test_first_largest();
    test_bit_writer();
}

}  // namespace azq::test
