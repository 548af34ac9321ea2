"""Proof that the same seed learns the same weights, whoever plays its games."""
