/// The twelve animals of Beasty Bar, and what an action plays.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace azq::beasty {

/// An animal is numbered by its strength less one.
enum Animal : std::int8_t {
    kSkunk,
    kParrot,
    kKangaroo,
    kMonkey,
    kChameleon,
    kSeal,
    kZebra,
    kGiraffe,
    kSnake,
    kCrocodile,
    kHippo,
    kLion,
};

inline constexpr int kAnimals = 12;
inline constexpr int kHand = 4;          ///< Cards that a hand begins with.
inline constexpr int kMaxQueue = 5;      ///< Animals that open the bar.
inline constexpr int kNumActions = 33;
inline constexpr unsigned kAll = (1u << kAnimals) - 1;
inline constexpr int kTotalPoints = 36;  ///< Of one player's cards.

inline constexpr std::array<const char*, kAnimals> kNames{"skunk", "parrot",  "kangaroo", "monkey",    "chameleon", "seal",
                                                          "zebra", "giraffe", "snake",    "crocodile", "hippo",     "lion"};
inline constexpr std::string_view kCodes = "SkPaKaMoChSeZeGiSnCrHiLi";  ///< Two letters an animal.
inline constexpr std::array<std::int8_t, kAnimals> kPoints{4, 4, 4, 3, 3, 2, 4, 3, 2, 3, 2, 2};

/// What an action says: the card, whose action it takes, and its choice (a jump, an index in the queue; -1: none).
struct Play {
    std::int8_t card;
    std::int8_t as;
    std::int8_t choice;
};

/// The animals without a choice, in the order of their actions.
inline constexpr std::array<Animal, 9> kPlain{kLion, kHippo, kCrocodile, kSnake, kGiraffe, kZebra, kSeal, kMonkey, kSkunk};

inline constexpr int kKangarooAction = 9;    ///< And 10, 11: jumps of 0, 1, 2.
inline constexpr int kParrotAction = 12;     ///< Without a target; 13..16: queue index 0..3.
inline constexpr int kIdleChameleon = 17;    ///< And 18..26: as the animal of action 0..8.
inline constexpr int kJumpingChameleon = 27; ///< And 28: jumps of 1, 2.
inline constexpr int kParrotChameleon = 29;  ///< And on: queue index 0..3.

constexpr Play play_of(int action) {
    const auto play = [](int card, int as, int choice) {
        return Play{static_cast<std::int8_t>(card), static_cast<std::int8_t>(as), static_cast<std::int8_t>(choice)};
    };
    if (action < kKangarooAction) return play(kPlain[static_cast<std::size_t>(action)], kPlain[static_cast<std::size_t>(action)], -1);
    if (action < kParrotAction) return play(kKangaroo, kKangaroo, action - kKangarooAction);
    if (action < kIdleChameleon) return play(kParrot, kParrot, action - kParrotAction - 1);
    if (action == kIdleChameleon) return play(kChameleon, kChameleon, -1);
    if (action < kJumpingChameleon) {
        return play(kChameleon, kPlain[static_cast<std::size_t>(action - kIdleChameleon - 1)], -1);
    }
    if (action < kParrotChameleon) return play(kChameleon, kKangaroo, action - kJumpingChameleon + 1);
    return play(kChameleon, kParrot, action - kParrotChameleon);
}

inline constexpr std::array<Play, kNumActions> kPlays = [] {
    std::array<Play, kNumActions> plays{};
    for (int action = 0; action < kNumActions; ++action) plays[static_cast<std::size_t>(action)] = play_of(action);
    return plays;
}();

inline std::string code(int animal) { return std::string(kCodes.substr(2 * static_cast<std::size_t>(animal), 2)); }

/// E.g. "lion", "kangaroo jumps 2", "parrot at 0", "chameleon as seal", "chameleon as parrot at 3".
inline std::string play_text(int action) {
    const Play play = kPlays[static_cast<std::size_t>(action)];
    std::string text = kNames[static_cast<std::size_t>(play.card)];
    if (play.as != play.card) text += std::string(" as ") + kNames[static_cast<std::size_t>(play.as)];
    if (play.as == kKangaroo) text += " jumps " + std::to_string(play.choice);
    if (play.as == kParrot && play.choice >= 0) text += " at " + std::to_string(play.choice);
    if (action == kParrotAction || action == kIdleChameleon) text += " in vain";
    return text;
}

}  // namespace azq::beasty
