/// What self-play keeps of one game; with its uid, all that another worker needs to go on with it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "azq/math.hpp"

namespace azq {

/// Where the game of a slot stands.
enum class SlotStatus : std::uint8_t {
    kEmpty,
    kBusy,      ///< Searching.
    kIdle,      ///< Without autoplay: budget spent, waits for `play`.
    kChance,    ///< Without autoplay: chance is to act, waits for `play` with an outcome.
    kFinished,
};

/// One entry per ply, chance's included (`policies`: kNumActions per ply).
struct GameRecord {
    std::uint64_t uid = 0;
    std::vector<std::uint16_t> actions;
    std::vector<Half> policies;                   ///< Policy targets; zeros where `simulations` is 0.
    std::vector<float> root_values;               ///< For the player to move; with V values, V per ply, from his seat on.
    std::vector<std::uint16_t> simulations;       ///< Simulations of the ply, at least 1 where there is a target; 0: no target.
    std::vector<std::uint32_t> weight_versions;   ///< Of the last evaluation before the ply was played.

    int plies() const { return static_cast<int>(actions.size()); }

    void append(std::uint16_t action, const Half* policy, int num_actions, const float* values, int num_values, std::uint16_t spent,
                std::uint32_t version) {
        actions.push_back(action);
        policies.insert(policies.end(), policy, policy + num_actions);
        root_values.insert(root_values.end(), values, values + num_values);
        simulations.push_back(spent);
        weight_versions.push_back(version);
    }
};

/// Policies without their zeros.
struct SparsePolicies {
    std::vector<std::uint8_t> support;  ///< A bit for each action of a ply that has an entry, little bit order, each ply's padded to a byte.
    std::vector<Half> entries;          ///< In order.
};

/// The policies of a game in this form; nothing where that saves less than half, which is not worth the work.
inline std::optional<SparsePolicies> sparse_policies(const GameRecord& game, std::size_t num_actions) {
    const std::size_t row_bytes = (num_actions + 7) / 8;
    const auto plies = static_cast<std::size_t>(game.plies());
    SparsePolicies sparse{std::vector<std::uint8_t>(plies * row_bytes), {}};
    const Half* policy = game.policies.data();
    for (std::size_t ply = 0; ply < plies; ++ply, policy += num_actions) {
        std::uint8_t* bits = sparse.support.data() + ply * row_bytes;
        for (std::size_t action = 0; action < num_actions; ++action) {
            if (policy[action].bits == 0) continue;
            bits[action / 8] = static_cast<std::uint8_t>(bits[action / 8] | 1u << action % 8);
            sparse.entries.push_back(policy[action]);
        }
    }
    if (2 * (sparse.support.size() + sparse.entries.size() * sizeof(Half)) > game.policies.size() * sizeof(Half)) return std::nullopt;
    return sparse;
}

}  // namespace azq
