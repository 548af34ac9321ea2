"""How strong players are, read from what was played: `matches` puts parts together, `elo` rates players, `outliers` names machines whose
results differ, `positions` has graded positions. Nothing is played here, and no network or search is imported: that is `azq.arena`.
"""
