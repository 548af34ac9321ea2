#include "azq/games/gomoku.hpp"
#include "azq/games/gomoku_swap2.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

template <int Size>
std::unique_ptr<AnyGame> of_size(bool exact_five, const Params& params) {
    return std::make_unique<ErasedGame<Gomoku<Size>>>(Gomoku<Size>(exact_five), params);
}

/// Fewer sizes: each is compiled by itself.
std::unique_ptr<AnyGame> with_swap2(int size, bool exact_five, ParamReader& read) {
    read.require(size == 9 || size == 15, "swap2 is there for sizes 9 and 15");
    if (size == 9) return std::make_unique<ErasedGame<GomokuSwap2<9>>>(GomokuSwap2<9>(exact_five), read.values());
    return std::make_unique<ErasedGame<GomokuSwap2<15>>>(GomokuSwap2<15>(exact_five), read.values());
}

std::unique_ptr<AnyGame> make(ParamReader& read) {
    const int size = read.one_of("size", {15, 9, 11, 13, 19});
    const bool exact_five = read.flag("exact5", false);
    if (read.flag("swap2", false)) return with_swap2(size, exact_five, read);
    switch (size) {
        case 9: return of_size<9>(exact_five, read.values());
        case 11: return of_size<11>(exact_five, read.values());
        case 13: return of_size<13>(exact_five, read.values());
        case 19: return of_size<19>(exact_five, read.values());
        default: return of_size<15>(exact_five, read.values());
    }
}

const Registration registration{"gomoku", make};

}  // namespace
}  // namespace azq
