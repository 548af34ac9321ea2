#include "azq/games/twenty_forty_eight.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

std::unique_ptr<AnyGame> make(ParamReader& read) {
    const int max_moves = read.integer("max_moves", TwentyFortyEight::kMaxLength, 1, TwentyFortyEight::kMaxLength);
    return std::make_unique<ErasedGame<TwentyFortyEight>>(TwentyFortyEight(max_moves), read.values());
}

const Registration registration{"2048", make};

}  // namespace
}  // namespace azq
