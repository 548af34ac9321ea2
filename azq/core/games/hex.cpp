#include "azq/games/hex.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

template <int Size>
std::unique_ptr<AnyGame> of_size(bool swap, const Params& params) {
    if (swap) return std::make_unique<ErasedGame<Hex<Size, true>>>(Hex<Size, true>{}, params);
    return std::make_unique<ErasedGame<Hex<Size>>>(Hex<Size>{}, params);
}

std::unique_ptr<AnyGame> make(ParamReader& read) {
    const int size = read.one_of("size", {11, 5, 7, 9, 13});
    const bool swap = read.flag("swap", false);
    switch (size) {
        case 5: return of_size<5>(swap, read.values());
        case 7: return of_size<7>(swap, read.values());
        case 9: return of_size<9>(swap, read.values());
        case 13: return of_size<13>(swap, read.values());
        default: return of_size<11>(swap, read.values());
    }
}

const Registration registration{"hex", make};

}  // namespace
}  // namespace azq
