#include "azq/games/blob.hpp"

#include "azq/any/erased_game.hpp"
#include "registry.hpp"

namespace azq {
namespace {

BlobRules read_rules(ParamReader& read, int players) {
    BlobRules rules;
    rules.cards = read.integer("cards", 5, 1, blob::kMostCards);
    read.require(players * rules.cards <= blob::kPack,
                 "players * cards must not exceed 52, and " + std::to_string(players) + " * " + std::to_string(rules.cards) + " does");
    rules.any_cards = read.flag("any_cards", false);
    const std::string trump = read.text("trump", {"any", "spades", "hearts", "clubs", "diamonds", "none"});
    rules.trump = -1;
    for (int suit = 0; suit <= blob::kNoTrump; ++suit) {
        constexpr const char* kNames[] = {"spades", "hearts", "clubs", "diamonds", "none"};
        if (trump == kNames[suit]) rules.trump = suit;
    }
    rules.dealer = read.integer("dealer", 0, 0, 7);
    read.require(rules.dealer < players, "dealer must be one of the players");
    rules.hook = read.flag("hook", true);
    const std::string scoring = read.text("scoring", {"exact", "openspiel", "square", "plus"});
    rules.scoring = scoring == "exact" ? BlobScoring::kExact : scoring == "square" ? BlobScoring::kSquare : scoring == "plus" ? BlobScoring::kPlus : BlobScoring::kOpenSpiel;
    rules.points_per_trick = read.integer("points_per_trick", 1, 1, 10);
    rules.off_bid_penalty = read.flag("off_bid_penalty", false);
    rules.whole_game = read.text("mode", {"round", "game"}) == "game";
    rules.relative = read.text("returns", {"own", "relative"}) == "relative";
    read.require(!rules.whole_game || rules.cards >= 2, "a whole game needs at least two cards in its longest round");
    read.require(!rules.whole_game || (rules.trump < 0 && !rules.any_cards), "a whole game has its own trumps and numbers of cards; leave out trump and any_cards");
    read.require(rules.scoring == BlobScoring::kOpenSpiel || (rules.points_per_trick == 1 && !rules.off_bid_penalty),
                 "points_per_trick and off_bid_penalty belong to scoring openspiel");
    return rules;
}

template <int Players>
std::unique_ptr<AnyGame> of(ParamReader& read) {
    const BlobRules rules = read_rules(read, Players);
    return std::make_unique<ErasedGame<Blob<Players>>>(Blob<Players>(rules), read.values());
}

std::unique_ptr<AnyGame> make(ParamReader& read) {
    switch (read.one_of("players", {4, 3, 5, 6, 7, 8})) {
        case 3: return of<3>(read);
        case 5: return of<5>(read);
        case 6: return of<6>(read);
        case 7: return of<7>(read);
        case 8: return of<8>(read);
        default: return of<4>(read);
    }
}

const Registration registration{"blob", make};

}  // namespace
}  // namespace azq
