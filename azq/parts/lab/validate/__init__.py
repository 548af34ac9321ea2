"""Proof that the same seed learns the same weights, however its games are played."""
