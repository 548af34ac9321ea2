"""`python -m azq` is `azq`."""

from azq.cli import main

main()
