"""`azq join`: this machine works for a fleet that another machine keeps, after one command."""

from azq.host.join.join import Wish, join
from azq.host.join.token import Invitee, invitation

__all__ = ["Invitee", "Wish", "invitation", "join"]
