/// What the search in Python knows of a node, and how PUCT and Gumbel choose there: the formulas of puct.hpp and gumbel.hpp in float64.
///
/// Values are the node's own actor's. Sums are taken as numpy takes them, so that scores do not depend on which of the two computes them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "azq/math.hpp"

namespace azq::bind {

using Doubles = std::vector<double>;

/// e^x for x <= 0, by + - * / alone, the same bits on every target; 0 below -708. Cephes (Moshier), exp; relative error about 2e-16.
inline double exp64(double x) {
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to the nearest integer in the low mantissa bits
    if (x < -708.0) return 0.0;
    const double shifted = x * 1.4426950408889634073599 + kRound;
    const double n = shifted - kRound;
    const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
    const double square = r * r;
    double p = 1.26177193074810590878e-4 * square + 3.02994407707441961300e-2;
    p = (p * square + 9.99999999999999999910e-1) * r;
    double q = 3.00198505138664455042e-6 * square + 2.52448340349684104192e-3;
    q = q * square + 2.27265548208155028766e-1;
    q = q * square + 2.0;
    const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52;
    return (1.0 + 2.0 * (p / (q - p))) * std::bit_cast<double>(exponent);
}

/// Pairwise in eights.
inline double sum_of(const double* values, std::size_t count) {
    if (count < 8) {
        double sum = 0.0;
        for (std::size_t i = 0; i < count; ++i) sum += values[i];
        return sum;
    }
    if (count > 128) {
        const std::size_t half = count / 2 - count / 2 % 8;
        return sum_of(values, half) + sum_of(values + half, count - half);
    }
    double lanes[8];
    std::copy_n(values, 8, lanes);
    std::size_t i = 8;
    for (; i + 8 <= count; i += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
    }
    double sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    for (; i < count; ++i) sum += values[i];
    return sum;
}

/// softmax in place.
inline void normalize(Doubles& scores) {
    const double most = *std::max_element(scores.begin(), scores.end());
    for (double& score : scores) score = exp64(score - most);
    const double sum = sum_of(scores.data(), scores.size());
    for (double& score : scores) score /= sum;
}

inline int first_largest(const Doubles& scores) {
    return static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

struct NodeStatistics {
    std::vector<std::int32_t> actions;  ///< Legal ones; all that follows by edge is in their order.
    Doubles logits, prior, q;
    std::vector<std::int64_t> visits;
    double raw_value = 0.0, mean = 0.0;
    std::int64_t total = 0;  ///< Visits, its own evaluation included.

    explicit NodeStatistics(std::vector<std::int32_t> legal)
        : actions(std::move(legal)),
          logits(actions.size()),
          prior(actions.size(), 1.0 / static_cast<double>(actions.size())),
          q(actions.size()),
          visits(actions.size()) {}

    /// Takes the evaluation: logits of all actions, value for the actor.
    void expand(const Half* all_logits, double value) {
        for (std::size_t i = 0; i < actions.size(); ++i) {
            logits[i] = std::clamp(static_cast<double>(to_float(all_logits[actions[i]])), -65504.0, 65504.0);
        }
        prior = logits;
        normalize(prior);
        for (double& share : prior) share = std::max(share, 1e-38);
        raw_value = value;
        count(value);
    }

    /// Backs a value up through an edge.
    void update(std::size_t edge, double value) {
        visits[edge] += 1;
        q[edge] += (value - q[edge]) / static_cast<double>(visits[edge]);
        count(value);
    }

    /// argmax of Q + c_puct P sqrt(N) / (1 + n), unvisited actions at the mean less fpu_reduction.
    int select_puct(double c_puct, double fpu_reduction, double q_range) const {
        const double half_range = range_of_visited(q_range) * 0.5;
        const double first = mean - fpu_reduction * half_range, weight = c_puct * std::sqrt(static_cast<double>(total)) * half_range;
        Doubles scores(actions.size());
        for (std::size_t i = 0; i < scores.size(); ++i) {
            scores[i] = (visits[i] > 0 ? q[i] : first) + weight * prior[i] / static_cast<double>(1 + visits[i]);
        }
        return first_largest(scores);
    }

    /// argmax of pi'(a) - n(a) / (1 + sum n).
    int select_gumbel(double c_visit, double c_scale, double q_range) const {
        Doubles completed, scores;
        improve(c_visit, c_scale, q_range, completed, scores);
        normalize(scores);
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] -= static_cast<double>(visits[i]) / static_cast<double>(total);
        return first_largest(scores);
    }

    /// argmax of noisy logit + sigma(q) among the actions with so many visits.
    int select_considered(const double* noisy_logits, std::int64_t considered, double c_visit, double c_scale, double q_range) const {
        Doubles completed;
        const double scale = complete(c_visit, c_scale, q_range, completed);
        Doubles scores(actions.size(), -std::numeric_limits<double>::infinity());
        for (std::size_t i = 0; i < scores.size(); ++i) {
            if (visits[i] == considered) scores[i] = noisy_logits[i] + scale * (completed[i] + 1.0);
        }
        return first_largest(scores);
    }

    /// Completed q, and logits + sigma(q).
    void improve(double c_visit, double c_scale, double q_range, Doubles& completed, Doubles& scores) const {
        const double scale = complete(c_visit, c_scale, q_range, completed);
        scores.resize(actions.size());
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = logits[i] + scale * (completed[i] + 1.0);
    }

    /// q where visited, elsewhere the mixed value (Gumbel AlphaZero, appendix D); returns by what sigma multiplies q + 1.
    double complete(double c_visit, double c_scale, double q_range, Doubles& completed) const {
        Doubles priors, values;
        priors.reserve(actions.size());
        values.reserve(actions.size());
        std::int64_t played = 0, most = 0;
        for (std::size_t i = 0; i < actions.size(); ++i) {
            if (visits[i] == 0) continue;
            priors.push_back(prior[i]);
            values.push_back(prior[i] * q[i]);
            played += visits[i];
            most = std::max(most, visits[i]);
        }
        double mixed = raw_value;
        if (played > 0) {
            const double weighted = sum_of(values.data(), values.size()) / sum_of(priors.data(), priors.size());
            mixed = (mixed + static_cast<double>(played) * weighted) / static_cast<double>(1 + played);
        }
        completed.resize(actions.size());
        for (std::size_t i = 0; i < completed.size(); ++i) completed[i] = visits[i] > 0 ? q[i] : mixed;
        return (c_visit + static_cast<double>(most)) * c_scale / range_of(completed, q_range);
    }

  private:
    /// What counts as the whole range of q: 2, or with `q_range` below 2 that of these numbers, `q_range` at least.
    static double range_of(const Doubles& values, double q_range) {
        if (q_range >= 2.0 || values.empty()) return q_range;
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        return std::max(*most - *least, q_range);
    }

    double range_of_visited(double q_range) const {
        if (q_range >= 2.0) return 2.0;
        Doubles seen;
        for (std::size_t i = 0; i < q.size(); ++i) {
            if (visits[i] > 0) seen.push_back(q[i]);
        }
        return range_of(seen, q_range);
    }

    void count(double value) {
        total += 1;
        mean += (value - mean) / static_cast<double>(total);
    }
};

}  // namespace azq::bind
