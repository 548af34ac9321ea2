#include "azq/games/connect_four.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

std::unique_ptr<AnyGame> make(ParamReader& read) { return std::make_unique<ErasedGame<ConnectFour>>(ConnectFour{}, read.values()); }

const Registration registration{"connect_four", make};

}  // namespace
}  // namespace azq
