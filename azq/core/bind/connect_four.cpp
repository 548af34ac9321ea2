#include "azq/games/connect_four.hpp"

#include "erased.hpp"

namespace azq::bind {

std::unique_ptr<AnyGame> make_connect_four() { return std::make_unique<ErasedGame<ConnectFour>>(); }

}  // namespace azq::bind
