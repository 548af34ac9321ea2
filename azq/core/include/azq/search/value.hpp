/// Values inside a tree belong to players, never to depths.
///
/// Consecutive nodes may have the same actor (a pass, a double, a trick winner who leads again), so no sign is ever flipped by
/// counting plies. A two-player zero-sum value is stored as player 0's; whoever reads it names the player it is for.
/// A game with more players would store a vector with one value per seat and read its own entry in the same two functions.
#pragma once

namespace azq {

/// +1 or -1: multiplies player 0's value into the given player's and back.
inline float sign_of(int player) { return player == 0 ? 1.0f : -1.0f; }

inline float clamp(float value, float low, float high) { return value < low ? low : (value > high ? high : value); }

}  // namespace azq
