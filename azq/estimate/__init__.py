"""`azq estimate`: how long a game takes to learn here, whether it fits this machine, and what it costs; measured in half a minute."""
