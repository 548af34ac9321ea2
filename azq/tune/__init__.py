"""`azq tune`: how self-play is best spread over this machine, measured: processes, threads, games at once, groups, leaves a step."""
