"""Opponents that run in separate processes: a failure of one costs its match and nothing else."""
