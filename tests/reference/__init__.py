"""The search in plain Python: slow, clear, float32 step by step, equal to azq._core bit for bit.

Read it beside azq/core/include/azq: the same phases under the same names. It shares nothing with the core but the rules
(`azq.games`), which are themselves checked against OpenSpiel.
"""
