"""Expected results, committed, and the scripts that make them anew."""
