"""Measures, rehearses, proves and searches: bench, drill, validate, calibrate, sweep."""
