/// Positions that are one but for a symmetry of the board, brought to one form.
///
/// The form of an observation is that one of its images whose place is the smallest. Names are sums of random numbers, one for
/// each bit that is set (Zobrist, 1970), the places of all images taken at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "azq/search/cache.hpp"
#include "azq/game.hpp"

namespace azq {

template <Game G>
class Symmetries {
  public:
    static constexpr int kCount = G::kNumSymmetries;
    static constexpr int kCells = G::kRows * G::kColumns;
    static constexpr int kBits = G::kPlanes * kCells;

    explicit Symmetries(const G& rules)
        : cell_images_(static_cast<std::size_t>(kCount) * kCells), action_images_(static_cast<std::size_t>(kCount) * G::kNumActions),
          places_(kBits), checks_(kBits) {
        for (int symmetry = 0; symmetry < kCount; ++symmetry) {
            for (int image = 0; image < kCells; ++image) cell_image(symmetry, rules.symmetric_cell(symmetry, image)) = static_cast<std::uint16_t>(image);
            for (int action = 0; action < G::kNumActions; ++action) {
                action_image(symmetry, action) = static_cast<std::uint16_t>(rules.symmetric_action(symmetry, action));
            }
        }
        for (int bit = 0; bit < kBits; ++bit) number(bit);
    }

    /// Names an observation's form; returns the symmetry that leads there, the first where several do.
    int name(const std::uint8_t* packed, Name& name) const {
        std::uint64_t places[kCount] = {};
        each_bit(packed, [&](int bit) {
            const Numbers& numbers = places_[static_cast<std::size_t>(bit)];
            for (int symmetry = 0; symmetry < kCount; ++symmetry) places[symmetry] += numbers.of[symmetry];
        });
        int least = 0;
        for (int symmetry = 1; symmetry < kCount; ++symmetry) least = places[symmetry] < places[least] ? symmetry : least;
        std::uint64_t check = 0;
        each_bit(packed, [&](int bit) { check += checks_[static_cast<std::size_t>(bit)].of[least]; });
        const Name scalars = name_of(packed + kPlaneBytes, G::kNumScalars);
        name = Name{mix(places[least] ^ scalars.place), mix(check ^ scalars.check)};
        return least;
    }

    /// Replaces an observation by its image.
    void turn(int symmetry, std::uint8_t* packed) const {
        if (symmetry == 0) return;
        std::uint8_t image[kPlaneBytes + 1] = {};
        each_bit(packed, [&](int bit) {
            const int target = bit / kCells * kCells + cell_image(symmetry, bit % kCells);
            image[target / 8] = static_cast<std::uint8_t>(image[target / 8] | 1u << target % 8);
        });
        std::memcpy(packed, image, kPlaneBytes);
    }

    int action(int symmetry, int action) const { return action_image(symmetry, action); }  ///< An action's image.

    /// The logits of an observation from those of its image.
    void turn_back(int symmetry, const Half* image, Half* logits) const {
        for (int action = 0; action < G::kNumActions; ++action) logits[action] = image[action_image(symmetry, action)];
    }

  private:
    static constexpr std::size_t kPlaneBytes = (kBits + 7) / 8;

    /// A bit's random numbers in every image.
    struct Numbers {
        std::uint64_t of[kCount];
    };

    void number(int bit) {
        for (int symmetry = 0; symmetry < kCount; ++symmetry) {
            const auto target = static_cast<std::uint64_t>(bit / kCells * kCells + cell_image(symmetry, bit % kCells));
            places_[static_cast<std::size_t>(bit)].of[symmetry] = mix(2 * target + 1);
            checks_[static_cast<std::size_t>(bit)].of[symmetry] = mix(~(2 * target + 1));
        }
    }

    template <class Visit>
    static void each_bit(const std::uint8_t* packed, Visit&& visit) {
        for (std::size_t at = 0; at < kPlaneBytes; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, packed + at, kPlaneBytes - at < 8 ? kPlaneBytes - at : 8);
            for (; word != 0; word &= word - 1) visit(static_cast<int>(8 * at) + std::countr_zero(word));
        }
    }

    std::uint16_t& cell_image(int symmetry, int cell) { return cell_images_[index(symmetry, cell, kCells)]; }
    const std::uint16_t& cell_image(int symmetry, int cell) const { return cell_images_[index(symmetry, cell, kCells)]; }
    std::uint16_t& action_image(int symmetry, int action) { return action_images_[index(symmetry, action, G::kNumActions)]; }
    const std::uint16_t& action_image(int symmetry, int action) const { return action_images_[index(symmetry, action, G::kNumActions)]; }
    static std::size_t index(int symmetry, int at, int count) { return static_cast<std::size_t>(symmetry * count + at); }

    std::vector<std::uint16_t> cell_images_;
    std::vector<std::uint16_t> action_images_;
    std::vector<Numbers> places_;
    std::vector<Numbers> checks_;
};

}  // namespace azq
