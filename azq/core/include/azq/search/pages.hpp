/// Zeroed memory straight from the system: of an operating system by pages, in WebAssembly off the end of what there is.
#pragma once

#include <cstddef>

#ifdef __wasm__
#include <cstdint>
#include <cstdlib>
#include <cstring>
#else
#include <sys/mman.h>

#include <new>
#endif

namespace azq::pages {

inline constexpr std::size_t kPage = 4096;

#ifdef __wasm__

/// Only what lay in memory before is zeroed: a page that nobody touches costs a browser nothing.
inline std::byte* take(std::size_t bytes) {
    const std::uintptr_t fresh = __builtin_wasm_memory_size(0) * 65536;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
    if (memory == nullptr) __builtin_trap();  // who makes a search asks first whether there is room for it
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    if (begin < fresh) std::memset(memory, 0, begin + bytes < fresh ? bytes : fresh - begin);
    return memory;
}

inline void give_back(std::byte* memory, std::size_t) { std::free(memory); }

/// Memory never shrinks here, so the pages stay.
inline void clear(std::byte* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

#else

/// Pages come from the system as they are first touched; large ones where it has them, because with thousands of trees every step is
/// also a miss in the address translation (measured: 1.4 times as many simulations).
inline std::byte* take(std::size_t bytes) {
    [[maybe_unused]] constexpr std::size_t kLargePage = std::size_t{2} << 20;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (bytes >= kLargePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: refused, it changes nothing but speed
#endif
    return static_cast<std::byte*>(memory);
}

inline void give_back(std::byte* memory, std::size_t bytes) { munmap(memory, bytes); }

/// Zeroes whole pages and lets the system have them.
inline void clear(std::byte* memory, std::size_t bytes) { madvise(memory, bytes, MADV_DONTNEED); }

#endif

}  // namespace azq::pages
