"""Compares players: matches, ratings with intervals, moves graded against exactly solved positions, analysis of positions."""
