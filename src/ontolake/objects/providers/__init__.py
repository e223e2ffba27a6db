"""Providers of object storage, one object a scheme: client, credentials, options for Lance and Spark, hints.

`base` is the contract, `amazon` has S3 and R2, `google` and `azure` one each. To add one, write its class and name it
in `PROVIDERS` and in `ontolake.urls.BUCKETS`. Nothing here imports obstore before a client is made.
"""

from __future__ import annotations

from ontolake.errors import Invalid
from ontolake.objects.providers.amazon import R2, S3
from ontolake.objects.providers.azure import AzureStorage
from ontolake.objects.providers.base import Access, Provider
from ontolake.objects.providers.google import GoogleStorage
from ontolake.urls import Location

__all__ = ["PROVIDERS", "Access", "Provider", "provider_of"]

PROVIDERS: dict[str, Provider] = {one.scheme: one for one in (S3(), R2(), GoogleStorage(), AzureStorage())}


def provider_of(location: Location) -> Provider:
    """The provider of a location. Raises `Invalid` for one that is not known: none stands in for it."""
    found = PROVIDERS.get(location.scheme)
    if found is None:
        known = ", ".join(f"{scheme}://" for scheme in PROVIDERS)
        raise Invalid(f"no provider of object storage is known for {location.url!r}", hint=f"known are {known}")
    return found
