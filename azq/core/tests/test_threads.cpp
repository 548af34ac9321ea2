#include "../bind/threads.hpp"

#include "check.hpp"

namespace azq::test {

void test_threads() {
    for (const int size : {1, 2, 5}) {
        bind::LazyThreads threads(size);
        for (const int count : {0, 1, 7, 1000}) {
            std::vector<int> touched(static_cast<std::size_t>(count), 0);
            for (int round = 0; round < 20; ++round) {
                threads.run(count, 3, [&](int first, int last) {
                    for (int i = first; i < last; ++i) ++touched[static_cast<std::size_t>(i)];
                });
            }
            for (const int times : touched) CHECK(times == 20);
        }
    }
}

}  // namespace azq::test
