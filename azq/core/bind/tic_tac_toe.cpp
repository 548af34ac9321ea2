#include "azq/games/tic_tac_toe.hpp"

#include "erased.hpp"

namespace azq::bind {

std::unique_ptr<AnyGame> make_tic_tac_toe() { return std::make_unique<ErasedGame<TicTacToe>>(); }

}  // namespace azq::bind
