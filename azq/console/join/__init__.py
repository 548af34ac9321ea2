"""`azq join`: this machine works for a fleet that another machine keeps, after one command."""

from azq.console.join.join import Wish, join
from azq.console.join.token import Invitee, invitation

__all__ = ["Invitee", "Wish", "invitation", "join"]
