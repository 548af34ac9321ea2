/// Square boards: their eight symmetries, and planes of bits.
#pragma once

#include <cstdint>

namespace azq {

/// Where a symmetry takes a cell (row-major): quarter turns for symmetry % 4, after a left-right mirror from 4 on.
template <int Size>
constexpr int square_image(int symmetry, int cell) {
    int row = cell / Size;
    int column = cell % Size;
    if (symmetry >= 4) column = Size - 1 - column;
    for (int turn = 0; turn < symmetry % 4; ++turn) {
        const int turned = column;
        column = Size - 1 - row;
        row = turned;
    }
    return Size * row + column;
}

/// The cell that a symmetry takes to `image`. Turns are undone by turning on; a mirrored turn is its own inverse.
template <int Size>
constexpr int square_source(int symmetry, int image) {
    return square_image<Size>(symmetry < 4 ? (4 - symmetry) % 4 : symmetry, image);
}

/// Writes packed planes: bits in little order, one after another.
class BitWriter {
  public:
    explicit BitWriter(std::uint8_t* bytes) : bytes_(bytes) {}

    /// The lowest `count` bits, 1 to 64. Inlined, it is a shift or two where the count is known: 7 % of a simulation of Beasty Bar.
    [[gnu::always_inline]] void put(std::uint64_t bits, int count) {
        bits &= ~std::uint64_t{0} >> (64 - count);
        pending_ |= bits << filled_;
        filled_ += count;
        if (filled_ < 64) return;
        for (int byte = 0; byte < 8; ++byte) *bytes_++ = static_cast<std::uint8_t>(pending_ >> 8 * byte);
        filled_ -= 64;
        pending_ = filled_ > 0 ? bits >> (count - filled_) : 0;
    }

    /// Writes what is left, the last byte padded, and returns where the scalars begin.
    std::uint8_t* finish() {
        for (; filled_ > 0; filled_ -= 8, pending_ >>= 8) *bytes_++ = static_cast<std::uint8_t>(pending_);
        return bytes_;
    }

  private:
    std::uint8_t* bytes_;
    std::uint64_t pending_ = 0;
    int filled_ = 0;
};

}  // namespace azq
