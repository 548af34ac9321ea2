"""A run's games and checkpoints in its store, so that its learner's host may die."""
