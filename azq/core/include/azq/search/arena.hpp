/// Memory of many equal blocks, straight from the system.
#pragma once

#include "azq/search/pages.hpp"

namespace azq {

/// One zeroed piece of memory for all blocks.
class Arena {
  public:
    Arena(std::size_t blocks, std::size_t block_bytes) : bytes_(blocks * block_bytes), block_bytes_(block_bytes) {
        if (bytes_ > 0) memory_ = pages::take(bytes_);
    }
    ~Arena() {
        if (memory_ != nullptr) pages::give_back(memory_, bytes_);
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
    void release(std::size_t first, std::size_t last) const {
        first = (first + pages::kPage - 1) / pages::kPage * pages::kPage;
        last = last == bytes_ ? last : last / pages::kPage * pages::kPage;
        if (first < last) pages::clear(memory_ + first, last - first);
    }

    std::size_t bytes_;
    std::size_t block_bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace azq
