#pragma once
#include <cstdint>

namespace azq::nn {

/// Adds up products of whole numbers for so many rounds, as fast as this CPU can; returns how many products.
std::int64_t multiply(std::int64_t rounds);

}  // namespace azq::nn
