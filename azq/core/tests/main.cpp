/// azq_core_tests: the headers without Python, meant to run under address and undefined-behaviour sanitizers.
#include "check.hpp"

int main() {
#define AZQ_RUN(name) azq::test::test_##name();
    AZQ_TESTS(AZQ_RUN)
    if (azq::test::failures == 0) std::puts("azq_core_tests: all passed");
    return azq::test::failures == 0 ? 0 : 1;
}
