"""For tests of what is built on an object store: stores that are slow, fail or count, and real servers, S3 and Azure.

`doubles` has the stores; `servers` those of S3 and what servers share, `azurite` that of Azure, `buckets` the requests
that create buckets.
The pytest fixtures are in `ontolake.objects.testing.fixtures`, which alone needs pytest.
"""

from __future__ import annotations

from ontolake.objects.testing.azurite import AzuriteServer
from ontolake.objects.testing.doubles import CountingStore, Fault, FaultyStore, SlowStore
from ontolake.objects.testing.servers import MinistackServer, SeaweedServer, Server, local_bucket

__all__ = [
    "AzuriteServer",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "MinistackServer",
    "SeaweedServer",
    "Server",
    "SlowStore",
    "local_bucket",
]
