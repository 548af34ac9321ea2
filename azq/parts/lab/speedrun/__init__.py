"""Who learns fastest: tracks with a target, entries with their logs and weights, and what makes one a record."""
