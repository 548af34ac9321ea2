/// What this CPU, and the system on it, let a program use. Asked of the CPU itself: `__builtin_cpu_supports` needs symbols of a compiler's
/// library that not every library for linking has.
#pragma once

#include <cpuid.h>

namespace azq::nn {

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

/// A leaf of CPUID; zeros where there is none.
inline Registers cpuid(unsigned leaf, unsigned part = 0) {
    Registers found;
    return __get_cpuid_count(leaf, part, &found.a, &found.b, &found.c, &found.d) ? found : Registers{};
}

constexpr bool all_of(unsigned word, unsigned bits) { return (word & bits) == bits; }

/// Whether the system keeps these parts of the registers when it changes threads (XCR0).
inline bool kept(unsigned parts) {
    if (!all_of(cpuid(1).c, bit_OSXSAVE)) return false;
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return all_of(low, parts);
}

constexpr unsigned kYmm = 0x06, kZmm = 0xe6;

inline bool has_avx2() { return kept(kYmm) && all_of(cpuid(7).b, bit_AVX2); }

inline bool has_avx512() {
    const Registers seven = cpuid(7);
    return kept(kZmm) && all_of(seven.b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) && all_of(seven.c, bit_AVX512VNNI);
}

}  // namespace azq::nn
