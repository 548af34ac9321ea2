"""Rules of thumb for the card games, one file a game."""
