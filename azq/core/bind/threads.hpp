/// Threads of the binding; the headers under azq/ have none.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace azq::bind {

/// A fixed team that splits index ranges. The caller works too, so a team of one has no thread at all.
class ThreadTeam {
  public:
    using Work = std::function<void(int first, int last)>;

    explicit ThreadTeam(int size) {
        for (int i = 1; i < size; ++i) threads_.emplace_back([this] { serve(); });
    }
    ~ThreadTeam() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    /// Calls work on disjoint pieces of [0, count) and returns when all are done.
    void run(int count, int piece, const Work& work) {
        {
            const std::lock_guard lock(mutex_);
            work_ = &work;
            count_ = count;
            piece_ = piece;
            next_.store(0);
            running_ = static_cast<int>(threads_.size());
            ++round_;
        }
        wake_.notify_all();
        take_pieces();
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

  private:
    void take_pieces() {
        for (;;) {
            const int first = next_.fetch_add(piece_);
            if (first >= count_) return;
            (*work_)(first, first + piece_ < count_ ? first + piece_ : count_);
        }
    }

    void serve() {
        std::uint64_t seen = 0;
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return stop_ || round_ != seen; });
                if (stop_) return;
                seen = round_;
            }
            take_pieces();
            const std::lock_guard lock(mutex_);
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    std::vector<std::thread> threads_;
    std::atomic<int> next_{0};
    const Work* work_ = nullptr;
    int count_ = 0;
    int piece_ = 1;
    int running_ = 0;
    std::uint64_t round_ = 0;
    bool stop_ = false;
};

/// Starts its team at the first use in a process: a fork copies this object but not its threads (Celery forks its workers).
class LazyThreads {
  public:
    explicit LazyThreads(int size) : size_(size) {}
    ~LazyThreads() { abandon_after_fork(); }

    void run(int count, int piece, const ThreadTeam::Work& work) {
        if (size_ <= 1 || count <= piece) {
            if (count > 0) work(0, count);
            return;
        }
        abandon_after_fork();
        if (team_ == nullptr) {
            team_ = std::make_unique<ThreadTeam>(size_);
            process_ = getpid();
        }
        team_->run(count, piece, work);
    }

  private:
    /// The parent's threads do not exist here: joining them would hang, so their handles are leaked.
    void abandon_after_fork() {
        if (team_ != nullptr && process_ != getpid()) static_cast<void>(team_.release());
    }

    int size_;
    pid_t process_ = 0;
    std::unique_ptr<ThreadTeam> team_;
};

}  // namespace azq::bind
