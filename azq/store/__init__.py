"""Blobs named by their hash: weights travel through here.

A blob is written whole or not at all and verified whenever it is read. Where it is kept:

    file                  the run's own folder, the default on one machine or a shared disk; URI `file:<sha256>`
    redis                 the control plane; URI `redis:<sha256>`
    file:///folder, memory://name, s3://bucket/prefix, any other fsspec URL; URI is the blob's URL

A store writes to one place and reads what lies there, in the run's own folder or in the control plane, named by its hash; no other
URI is followed.
In the control plane a blob above 8 MiB is kept as chunks under a manifest (`azq.store.chunks`), as earlier versions did behind fsspec.
"""

from azq.store.blobs import BlobStore, Store, open_prefix, open_run_store, open_store, weights_folder

__all__ = ["BlobStore", "Store", "open_prefix", "open_run_store", "open_store", "weights_folder"]
