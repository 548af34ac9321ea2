"""Browsers that play for a run: what they are given, and what of theirs is believed."""
