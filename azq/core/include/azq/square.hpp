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

    /// The lowest `count` bits, at most 64.
    void put(std::uint64_t bits, int count) {
        while (count > 0) {
            const int taken = count < 8 - filled_ ? count : 8 - filled_;
            pending_ |= (static_cast<unsigned>(bits) & ((1u << taken) - 1)) << filled_;
            bits = taken < 64 ? bits >> taken : 0;
            count -= taken;
            filled_ += taken;
            if (filled_ == 8) flush();
        }
    }

    /// Writes the last byte where it is not full, and returns where the scalars begin.
    std::uint8_t* finish() {
        if (filled_ > 0) flush();
        return bytes_;
    }

  private:
    void flush() {
        *bytes_++ = static_cast<std::uint8_t>(pending_);
        pending_ = 0;
        filled_ = 0;
    }

    std::uint8_t* bytes_;
    unsigned pending_ = 0;
    int filled_ = 0;
};

}  // namespace azq
