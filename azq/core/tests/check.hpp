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

void test_math();
void test_lanes();
void test_rng();
void test_games();
void test_boards();
void test_beasty_bar();
void test_cache();
void test_search();
void test_infoset();
void test_blob();
void test_backgammon();
void test_threads();

}  // namespace azq::test

#define CHECK(condition) ::azq::test::check((condition), #condition, __FILE__, __LINE__)
