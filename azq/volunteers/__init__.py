"""Browsers' tabs that make games: who they are, what they hold, whether what they bring counts."""
