"""`python -m azq` is `azq`."""

from azq.cli.app import main

main()
