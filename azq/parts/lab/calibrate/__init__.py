"""`azq estimate` and `azq tune`: how long a game takes to learn here and what it costs, and how self-play is best spread over a machine."""
