"""Games as people and other programs write them: coordinates, units of results, moves in words, whole games in files. Pure."""
