/// Settings of a search, the same names as azq.config.SearchConfig, where their defaults are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

namespace azq {

enum class Algorithm : std::uint8_t { kGumbel, kPuct };

struct SearchConfig {
    Algorithm algorithm;
    std::int32_t num_simulations;         ///< PUCT: simulations through the root, kept ones included. Gumbel: new ones in a ply.
    std::int32_t leaves_per_step;         ///< Unevaluated leaves a tree may have at once.
    bool batch_root;                      ///< Ask for the root's children in one step, ahead of their first visits; changes no result.
    bool decisive_moves;                  ///< Look at each new position for an action that wins at once, which proves it.
    bool reuse_subtree;                   ///< Keep the played action's subtree for the next ply.
    std::int32_t max_considered_actions;  ///< Gumbel: actions sampled without replacement at the root.
    float gumbel_scale;                   ///< 0: no noise.
    float c_visit;
    float c_scale;
    float q_range;                        ///< Least difference of q that counts as the whole range; 2: always all of [-1, 1].
    float c_puct;
    float fpu_reduction;
    float dirichlet_alpha;
    float dirichlet_fraction;
    float temperature;                    ///< PUCT: exponent 1 / temperature on visit counts; 0 plays the most visited.
    std::int32_t temperature_plies;       ///< PUCT: later plies play the most visited action.
    std::int32_t determinizations;        ///< Hidden hands. 0: information sets. Else plain determinized search over so many worlds.
    std::int32_t random_opening_plies;    ///< Autoplay: most random plies before the first search; each game draws its number, 0 to this.
};

/// A setting by its name, and the values it may have, as numbers and in words.
template <class T>
struct Setting {
    const char* name;
    T SearchConfig::*member;
    T least = std::numeric_limits<T>::lowest();
    T most = std::numeric_limits<T>::max();
    const char* rule = "must be a number";
};

inline constexpr float kLeastPositive = std::numeric_limits<float>::denorm_min();
inline constexpr float kAnyMore = std::numeric_limits<float>::max();
inline constexpr std::int32_t kAnyMany = std::numeric_limits<std::int32_t>::max();

/// Every setting but the algorithm: a binding reads, checks and shows them from here.
inline constexpr std::tuple kSettings{
    Setting<std::int32_t>{"num_simulations", &SearchConfig::num_simulations, 1, 1 << 20, "must be in 1..1048576"},
    Setting<std::int32_t>{"leaves_per_step", &SearchConfig::leaves_per_step, 1, 4096, "must be in 1..4096"},
    Setting<bool>{"batch_root", &SearchConfig::batch_root},
    Setting<bool>{"decisive_moves", &SearchConfig::decisive_moves},
    Setting<bool>{"reuse_subtree", &SearchConfig::reuse_subtree},
    Setting<std::int32_t>{"max_considered_actions", &SearchConfig::max_considered_actions, 1, kAnyMany, "must be at least 1"},
    Setting<float>{"gumbel_scale", &SearchConfig::gumbel_scale, 0.0f, kAnyMore, "must not be negative"},
    Setting<float>{"c_visit", &SearchConfig::c_visit},
    Setting<float>{"c_scale", &SearchConfig::c_scale},
    Setting<float>{"q_range", &SearchConfig::q_range, kLeastPositive, 2.0f, "must be above 0 and at most 2"},
    Setting<float>{"c_puct", &SearchConfig::c_puct},
    Setting<float>{"fpu_reduction", &SearchConfig::fpu_reduction},
    Setting<float>{"dirichlet_alpha", &SearchConfig::dirichlet_alpha, kLeastPositive, kAnyMore, "must be positive"},
    Setting<float>{"dirichlet_fraction", &SearchConfig::dirichlet_fraction, 0.0f, 1.0f, "must be in [0, 1]"},
    Setting<float>{"temperature", &SearchConfig::temperature, 0.0f, kAnyMore, "must not be negative"},
    Setting<std::int32_t>{"temperature_plies", &SearchConfig::temperature_plies},
    Setting<std::int32_t>{"determinizations", &SearchConfig::determinizations, 0, kAnyMany, "must not be negative"},
    Setting<std::int32_t>{"random_opening_plies", &SearchConfig::random_opening_plies},
};

/// Most leaves that a tree has out at once, in a game of so many actions.
inline std::int32_t most_leaves(const SearchConfig& config, int actions) {
    if (!config.batch_root) return config.leaves_per_step;
    const std::int32_t most = config.algorithm == Algorithm::kGumbel ? config.max_considered_actions : config.num_simulations;
    return std::max(config.leaves_per_step, std::min<std::int32_t>(most, actions));
}

}  // namespace azq
