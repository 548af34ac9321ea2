/// A test is a function; CHECK counts failures and names the line. No framework, so that the sanitized build needs nothing.
#pragma once

#include <cstdio>

namespace azq::test {

inline int failures = 0;

inline void check(bool holds, const char* what, const char* file, int line) {
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
}

/// Every test, in the order in which they run.
#define AZQ_TESTS(RUN) \
    RUN(math) RUN(lanes) RUN(rng) RUN(games) RUN(boards) RUN(beasty_bar) RUN(cache) RUN(search) RUN(infoset) RUN(blob) RUN(backgammon) RUN(threads)

#define AZQ_DECLARE(name) void test_##name();
AZQ_TESTS(AZQ_DECLARE)

}  // namespace azq::test

#define CHECK(condition) ::azq::test::check((condition), #condition, __FILE__, __LINE__)
