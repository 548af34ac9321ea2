#include "azq/games/othello.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

std::unique_ptr<AnyGame> make(ParamReader& read) {
    const int size = read.one_of("size", {8, 6});
    if (size == 6) return std::make_unique<ErasedGame<Othello<6>>>(Othello<6>{}, read.values());
    return std::make_unique<ErasedGame<Othello<8>>>(Othello<8>{}, read.values());
}

const Registration registration{"othello", make};

}  // namespace
}  // namespace azq
