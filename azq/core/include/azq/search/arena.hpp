/// Memory of many equal blocks, straight from the system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace azq {

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
    std::size_t block_bytes() const { return block_bytes_; }
    /// Zeroes everything and gives the pages back; not while another thread looks.
    void clear() const { release(0, bytes_); }

    /// Gives the pages back that lie in a block wholly; its content is lost.
    void release(std::size_t index) const { release(index * block_bytes_, (index + 1) * block_bytes_); }

    std::byte* block(std::size_t index) const { return memory_ + index * block_bytes_; }

  private:
    static constexpr std::size_t kPage = 4096;
    static constexpr std::size_t kLargePage = std::size_t{2} << 20;

    void release(std::size_t first, std::size_t last) const {
        first = (first + kPage - 1) / kPage * kPage;
        last = last == bytes_ ? last : last / kPage * kPage;
        if (first < last) madvise(memory_ + first, last - first, MADV_DONTNEED);
    }

    std::size_t bytes_;
    std::size_t block_bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace azq
