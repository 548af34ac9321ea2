/// Memory of many equal blocks, straight from the system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace azq::bind {

/// One zeroed mapping of blocks. Pages come from the system as they are first touched; large ones where it has them, because
/// with thousands of trees every step is also a miss in the address translation (measured: 1.4 times as many simulations).
class Arena {
  public:
    Arena(std::size_t blocks, std::size_t block_bytes) : bytes_(blocks * block_bytes), block_bytes_(block_bytes) {
        if (bytes_ == 0) return;
        void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
        if (bytes_ >= kLargePage) madvise(memory, bytes_, MADV_HUGEPAGE);  // a wish: refused, it changes nothing but speed
#endif
    }
    ~Arena() {
        if (memory_ != nullptr) munmap(memory_, bytes_);
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    std::size_t bytes() const { return bytes_; }
    /// Zeroes everything and gives the pages back; not while another thread looks.
    void clear() const {
        if (memory_ != nullptr) madvise(memory_, bytes_, MADV_DONTNEED);
    }

    std::byte* block(std::size_t index) const { return memory_ + index * block_bytes_; }

  private:
    static constexpr std::size_t kLargePage = std::size_t{2} << 20;

    std::size_t bytes_;
    std::size_t block_bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace azq::bind
