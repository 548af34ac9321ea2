#include "azq/search/cache.hpp"

#include <thread>
#include <vector>

#include "azq/games/othello.hpp"
#include "azq/search/symmetry.hpp"
#include "check.hpp"

namespace azq::test {
namespace {

using Board = Othello<8>;
using Cache = EvaluationCache<Board>;

/// An evaluation whose numbers all say which it is.
void fill(std::uint16_t number, Cache::Evaluation& evaluation) {
    for (Half& value : evaluation.values) value.bits = number;
    for (Half& logit : evaluation.logits) logit.bits = number;
}

bool is_whole(const Cache::Evaluation& evaluation, std::uint16_t number) {
    for (const Half& logit : evaluation.logits) {
        if (logit.bits != number) return false;
    }
    return evaluation.values[0].bits == number;
}

void test_finds_what_was_put() {
    std::vector<Cache::Entry> memory(8);
    Cache cache(reinterpret_cast<std::byte*>(memory.data()), memory.size());
    const std::uint8_t first[3] = {1, 2, 3};
    const std::uint8_t second[3] = {1, 2, 4};
    Cache::Evaluation put;
    Cache::Evaluation found;
    fill(77, put);
    CHECK(!cache.find(name_of(first, 3), 1, found));
    cache.put(name_of(first, 3), put.logits, put.values, 1);
    CHECK(cache.find(name_of(first, 3), 1, found) && is_whole(found, 77));
    CHECK(!cache.find(name_of(first, 3), 2, found));
    CHECK(!cache.find(name_of(second, 3), 1, found));
    const Name same_place{name_of(first, 3).place, name_of(first, 3).check + 1};
    CHECK(!cache.find(same_place, 1, found));
    const Name other_label{same_place.place, same_place.check ^ std::uint64_t{1} << 32};
    CHECK(!cache.find(other_label, 1, found));
}

/// One place, written by several threads at once: what is found is what one of them put.
void test_torn_entries_are_none() {
    std::vector<Cache::Entry> memory(1);
    Cache cache(reinterpret_cast<std::byte*>(memory.data()), 1);
    constexpr int kRounds = 20000;
    const auto work = [&](std::uint16_t number) {
        const Name mine{0, 1};  // all threads put under one name
        Cache::Evaluation put;
        Cache::Evaluation found;
        fill(number, put);
        int torn = 0;
        for (int round = 0; round < kRounds; ++round) {
            cache.put(mine, put.logits, put.values, 1);
            if (cache.find(mine, 1, found)) torn += !is_whole(found, found.values[0].bits);
        }
        return torn;
    };
    int torn[3] = {};
    std::vector<std::thread> threads;
    for (std::uint16_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { torn[i] = work(static_cast<std::uint16_t>(i + 1)); });
    for (std::thread& thread : threads) thread.join();
    CHECK(torn[0] + torn[1] + torn[2] == 0);
}

/// All images of a position have one form; turned there they are equal, and actions come back to where they were.
void test_images_have_one_form() {
    const Board rules;
    const Symmetries<Board> symmetries(rules);
    auto state = rules.initial();
    for (const int action : {19, 18, 17, 9}) rules.apply(state, action);
    std::uint8_t packed[kPackedSize<Board>];
    rules.observe(state, rules.mover(state), packed);
    Name form;
    std::uint8_t expected[kPackedSize<Board>];
    std::memcpy(expected, packed, sizeof packed);
    symmetries.turn(symmetries.name(packed, form), expected);
    for (int symmetry = 0; symmetry < Board::kNumSymmetries; ++symmetry) {
        std::uint8_t image[kPackedSize<Board>];
        std::memcpy(image, packed, sizeof packed);
        symmetries.turn(symmetry, image);
        Name name;
        symmetries.turn(symmetries.name(image, name), image);
        CHECK(name == form);
        CHECK(std::memcmp(image, expected, sizeof image) == 0);
        Half of_image[Board::kNumActions];
        Half back[Board::kNumActions];
        for (int action = 0; action < Board::kNumActions; ++action) {
            of_image[rules.symmetric_action(symmetry, action)].bits = static_cast<std::uint16_t>(action);
        }
        symmetries.turn_back(symmetry, of_image, back);
        for (int action = 0; action < Board::kNumActions; ++action) CHECK(back[action].bits == action);
    }
}

}  // namespace

void test_cache() {
    test_finds_what_was_put();
    test_torn_entries_are_none();
    test_images_have_one_form();
}

}  // namespace azq::test
