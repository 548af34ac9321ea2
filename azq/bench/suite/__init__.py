"""`azq bench all`: every figure of this machine beside the bare network and beside the peers, in one run and within a time."""
