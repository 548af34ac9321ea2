"""Why a run does not learn: facts.py (figures of games and curves), rules.py (a pure function a rule), gather.py (the one reader)."""
