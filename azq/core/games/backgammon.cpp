#include "azq/games/backgammon.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

std::unique_ptr<AnyGame> make(ParamReader& read) {
    using Scoring = Backgammon::Scoring;
    using Start = Backgammon::Start;
    const std::string scoring = read.text("scoring", {"full", "gammons", "winloss"});
    const std::string opening = read.text("opening", {"throw", "uniform"});
    const std::string start = read.text("start", {"standard", "race", "bearoff"});
    const int max_turns = read.integer("max_turns", 1000, 1, 1000);
    const Backgammon rules(scoring == "full" ? Scoring::kFull : (scoring == "gammons" ? Scoring::kGammons : Scoring::kWinLoss),
                           opening == "uniform", start == "standard" ? Start::kStandard : (start == "race" ? Start::kRace : Start::kBearOff),
                           max_turns);
    return std::make_unique<ErasedGame<Backgammon>>(rules, read.values());
}

const Registration registration{"backgammon", make};

}  // namespace
}  // namespace azq
