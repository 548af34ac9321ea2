"""A typed client of the REST interface: the same routes that curl uses, errors as azq's own."""

from azq.client.client import Client

__all__ = ["Client"]
