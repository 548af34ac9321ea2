/// azq_core_tests: the headers without Python, meant to run under address and undefined-behaviour sanitizers.
#include "check.hpp"

int main() {
    azq::test::test_math();
    azq::test::test_lanes();
    azq::test::test_rng();
    azq::test::test_games();
    azq::test::test_boards();
    azq::test::test_beasty_bar();
    azq::test::test_cache();
    azq::test::test_search();
    azq::test::test_infoset();
    azq::test::test_blob();
    azq::test::test_backgammon();
    azq::test::test_threads();
    if (azq::test::failures == 0) std::puts("azq_core_tests: all passed");
    return azq::test::failures == 0 ? 0 : 1;
}
