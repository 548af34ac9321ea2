/// A game's templates behind the interfaces of any_game.hpp.
#pragma once

#include "azq/search/many_games.hpp"

namespace azq {

template <Game G>
class ErasedGame final : public AnyGame {
  public:
    ErasedGame(const G& rules, const Params& params) : rules_(rules), params_(params) {}

    std::string name() const override { return G::kName; }
    const Params& params() const override { return params_; }

    Dimensions dimensions() const override {
        Dimensions size{};
        size.players = G::kNumPlayers;
        size.actions = G::kNumActions;
        size.max_length = G::kMaxLength;
        size.planes = G::kPlanes;
        size.rows = G::kRows;
        size.columns = G::kColumns;
        size.scalars = G::kNumScalars;
        size.packed_size = kPackedSize<G>;
        size.symmetries = G::kNumSymmetries;
        size.value_size = kValueSize<G>;
        if constexpr (HasChance<G>) size.max_outcomes = G::kMaxOutcomes;
        if constexpr (HasOutcomeTargets<G>) size.outcome_targets = G::kNumOutcomeTargets;
        if constexpr (HasHiddenTargets<G>) size.hidden = G::kNumHidden;
        size.has_margin = HasMargin<G>;
        size.has_hidden = HasHidden<G>;
        size.sampled = kSampled<G>;
        if constexpr (HasActionLayout<G>) size.action_layout = G::kActionLayout;
        if constexpr (HasTokenGroups<G>) size.token_groups = G::kTokenGroups;
        if constexpr (HasScores<G>) {
            size.has_scores = true;
            size.scores = G::kScores;
        }
        return size;
    }

    std::unique_ptr<AnyState> new_initial_state() const override { return std::make_unique<ErasedState<G>>(rules_, rules_.initial()); }

    std::pair<std::unique_ptr<AnyState>, std::string> parse(const std::string& notation) const override {
        typename G::State state = rules_.initial();
        std::string broken = rules_.parse(notation, state);
        if (!broken.empty()) return {nullptr, std::move(broken)};
        return {std::make_unique<ErasedState<G>>(rules_, state), ""};
    }

    std::vector<float> outcome_combination() const override {
        std::vector<float> combination;
        if constexpr (HasOutcomeTargets<G>) {
            for (int i = 0; i < G::kNumOutcomeTargets; ++i) combination.push_back(rules_.kOutcomeWeights[i]);
            combination.push_back(rules_.kOutcomeBias);
        }
        return combination;
    }

    int symmetric_action(int symmetry, int action) const override { return rules_.symmetric_action(symmetry, action); }
    int symmetric_cell(int symmetry, int cell) const override { return rules_.symmetric_cell(symmetry, cell); }

    std::unique_ptr<AnySearch> make_search(const SearchConfig& config, int num_slots, std::uint64_t seed, bool autoplay,
                                           const Sharing& sharing) const override {
        return std::make_unique<ManyGames<G>>(rules_, config, num_slots, seed, autoplay, sharing);
    }

    double search_bytes(const SearchConfig& config, int num_slots) const override {
        return static_cast<double>(num_slots) * ManyGames<G>::slot_bytes(SearchContext<G>(rules_, config, 0, false).node_capacity());
    }

    std::unique_ptr<AnyCache> make_cache(std::size_t entries) const override { return std::make_unique<ErasedCache<G>>(entries); }

    std::unique_ptr<AnyUct> make_uct(int num_simulations, std::uint64_t seed, float c_uct) const override {
        if constexpr (HasHidden<G>) return nullptr;
        else return std::make_unique<ErasedClassical<G, Uct<G>, std::int32_t>>(rules_, num_simulations, seed, c_uct);
    }

    std::unique_ptr<AnyPimc> make_pimc(int num_determinizations, std::uint64_t seed) const override {
        return std::make_unique<ErasedClassical<G, Pimc<G>, float>>(rules_, num_determinizations, seed);
    }

    std::pair<std::int64_t, std::int64_t> random_playouts(std::int64_t count, std::uint64_t seed) const override {
        std::int64_t plies = 0;
        for (std::int64_t game = 0; game < count; ++game) {
            Rng rng(seed, static_cast<std::uint64_t>(game), 0, Purpose::kRandomGame);
            typename G::State state = rules_.initial();
            plies += play_randomly(rules_, state, rng);
        }
        return {count, plies};
    }

    std::int64_t random_redraws(std::int64_t count, std::uint64_t seed) const override {
        std::int64_t redraws = 0;
        if constexpr (HasHidden<G>) {
            constexpr int kTimes = 32;  // so that the games themselves cost little
            for (std::int64_t game = 0; game < count; ++game) {
                Rng rng(seed, static_cast<std::uint64_t>(game), 0, Purpose::kRandomGame);
                typename G::State state = rules_.initial();
                redraws += redraw_randomly(rules_, state, kTimes, rng);
            }
        }
        return redraws;
    }

  private:
    G rules_;
    Params params_;
};

}  // namespace azq
