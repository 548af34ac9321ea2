"""Where the upper layers get connections from; the code lies in `azq.wire.connect`, below the ledger, the queue and the store."""

from azq.wire.connect import address, address_of, connect, open_client, socket_timeout_s, translate

__all__ = ["address", "address_of", "connect", "open_client", "socket_timeout_s", "translate"]
