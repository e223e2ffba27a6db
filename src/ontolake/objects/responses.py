"""What a server's refusal means to us: one table from obstore's errors to ours."""

from __future__ import annotations

import re

from obstore import exceptions

from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed, StorageError, Transient
from ontolake.objects.providers import provider_of
from ontolake.urls import Location

# Where machines in the cloud ask for the credentials of their role: asked only when there are no others.
_METADATA_SERVERS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata/identity")


class RangeBeyondEnd(Invalid):
    """A range starts at or after an object's end."""


def explain(error: Exception, key: str, location: Location, endpoint: str) -> StorageError:
    """Our error for what obstore raised about `key` of `location`."""
    provider = provider_of(location)
    text = str(error).split("\n\nDebug source", 1)[0]
    code = _first(r"<Code>(\w+)</Code>", text) or provider.code(text)
    status = _first(r"(?:status code|\(code): (\d+)", text)
    where = f"the {provider.container} {location.bucket!r} of {location.url!r}"
    if any(server in text for server in _METADATA_SERVERS):
        return provider.missing_credentials(location)
    if code in provider.absent_codes:
        return Invalid(f"{where} does not exist at {endpoint}", hint=provider.absent_hint)
    if code in provider.region_codes:
        return Invalid(f"{where} is in another region: {code} from {endpoint}", hint=provider.region_hint)
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or code in provider.rights_codes or status in ("401", "403"):
        return Invalid(f"no right to use {key!r} in {where}: {code or status or 'refused'} from {endpoint}",
                       hint=provider.rights_hint)
    if code in provider.busy_codes:
        return Transient(f"object {key!r} in {location.url} is being written by somebody else", hint="try again")
    if isinstance(error, exceptions.AlreadyExistsError):
        return AlreadyExists(f"object {key!r} is in {location.url} already")
    if isinstance(error, exceptions.PreconditionError):
        return PreconditionFailed(f"object {key!r} in {location.url} is not as expected", hint="read it again")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no object {key!r} in {location.url}")
    if status == "416" or code == "InvalidRange" or "Wanted range starting at" in text:  # the latter says obstore
        return RangeBeyondEnd(f"the range is beyond the end of {key!r} in {location.url}")
    if isinstance(error, ValueError | exceptions.InvalidPathError | exceptions.UnknownConfigurationKeyError):
        return Invalid(f"{key!r} in {location.url}: {text}")
    detail = re.sub(r"\s+", " ", text)[:300]
    return Transient(f"no usable answer about {key!r} in {location.url} from {endpoint}: {detail}",
                     hint=provider.away_hint)


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(1) if match else None
