/// Settings of a search, the same names as azq.config.SearchConfig.
#pragma once

#include <cstdint>

namespace azq {

enum class Algorithm : std::uint8_t { kGumbel, kPuct };

struct SearchConfig {
    Algorithm algorithm;
    std::int32_t num_simulations;         ///< PUCT: simulations through the root, kept ones included. Gumbel: new ones in a ply.
    std::int32_t leaves_per_step;         ///< Unevaluated leaves a tree may have at once.
    bool reuse_subtree;                   ///< Keep the played action's subtree for the next ply.
    std::int32_t max_considered_actions;  ///< Gumbel: actions sampled without replacement at the root.
    float gumbel_scale;                   ///< 0: no noise.
    float c_visit;
    float c_scale;
    float c_puct;
    float fpu_reduction;
    float dirichlet_alpha;
    float dirichlet_fraction;
    float temperature;                    ///< PUCT: exponent 1 / temperature on visit counts; 0 plays the most visited.
    std::int32_t temperature_plies;       ///< PUCT: later plies play the most visited action.
    std::int32_t determinizations;        ///< Hidden hands. 0: information sets. Else plain determinized search over so many worlds.
    std::int32_t random_opening_plies;    ///< Autoplay: most random plies before the first search; each game draws its number, 0 to this.
};

}  // namespace azq
