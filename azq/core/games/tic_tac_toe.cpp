#include "azq/games/tic_tac_toe.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

std::unique_ptr<AnyGame> make(ParamReader& read) { return std::make_unique<ErasedGame<TicTacToe>>(TicTacToe{}, read.values()); }

const Registration registration{"tic_tac_toe", make};

}  // namespace
}  // namespace azq
