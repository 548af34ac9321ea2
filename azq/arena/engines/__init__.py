"""Opponents that run in processes of their own: whatever one of them does, it costs its match and nothing else."""
