"""`azq profile`: where the time of a run's processes goes, from what their heartbeats say."""
