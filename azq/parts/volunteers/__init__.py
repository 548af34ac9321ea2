"""Browsers that play for a run: games that they are handed, and checks that their games pass."""
