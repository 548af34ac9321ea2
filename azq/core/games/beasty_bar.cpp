#include "azq/games/beasty_bar.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

template <int Players>
std::unique_ptr<AnyGame> with(BarScoring scoring, const Params& params) {
    return std::make_unique<ErasedGame<BeastyBar<Players>>>(BeastyBar<Players>(scoring), params);
}

std::unique_ptr<AnyGame> make(ParamReader& read) {
    const int players = read.one_of("players", {2, 3, 4});
    const BarScoring scoring = read.text("scoring", {"points", "count"}) == "points" ? BarScoring::kPoints : BarScoring::kCount;
    if (players == 2) return with<2>(scoring, read.values());
    if (players == 3) return with<3>(scoring, read.values());
    return with<4>(scoring, read.values());
}

const Registration registration{"beasty_bar", make};

}  // namespace
}  // namespace azq
