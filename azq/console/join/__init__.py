"""`azq join`: this machine works for a fleet that another machine keeps, after one command."""

from azq.console.join.join import Wish, join
from azq.console.join.token import Guest, invitation

__all__ = ["Guest", "Wish", "invitation", "join"]
