"""What a server's refusal means to us: one table from obstore's errors to ours."""

from __future__ import annotations

import re

from obstore import exceptions

from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed, StorageError, Transient
from ontolake.objects.credentials import VARIABLES, missing_credentials
from ontolake.urls import Location

# Where machines in the cloud ask for the credentials of their role: asked only when there are no others.
_METADATA_SERVERS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata/identity")

_WRONG_CREDENTIALS = {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"}
_WRONG_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


class RangeBeyondEnd(Invalid):
    """A range starts at or after an object's end."""


def explain(error: Exception, key: str, location: Location, endpoint: str) -> StorageError:
    """Our error for what obstore raised about `key` of `location`."""
    text = str(error).split("\n\nDebug source", 1)[0]
    code = _first(r"<Code>(\w+)</Code>", text)
    status = _first(r"status code: (\d+)", text)
    where = f"the bucket {location.bucket!r} of {location.url!r}"
    if any(server in text for server in _METADATA_SERVERS):
        return missing_credentials(location)
    if code == "NoSuchBucket":
        return Invalid(f"{where} does not exist at {endpoint}",
                       hint="create it, or check its name, AWS_ENDPOINT_URL and AWS_REGION")
    if code in _WRONG_REGION:
        return Invalid(f"{where} is in another region: {code} from {endpoint}", hint="set AWS_REGION to the bucket's")
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or code in _WRONG_CREDENTIALS or status in ("401", "403"):
        return Invalid(f"no right to use {key!r} in {where}: {code or status or 'refused'} from {endpoint}",
                       hint=f"check {VARIABLES}, and the rights they give")
    if code == "ConditionalRequestConflict":  # two writers met; S3 asks the loser to try again
        return Transient(f"object {key!r} in {location.url} is being written by somebody else", hint="try again")
    if isinstance(error, exceptions.AlreadyExistsError):
        return AlreadyExists(f"object {key!r} is in {location.url} already")
    if isinstance(error, exceptions.PreconditionError):
        return PreconditionFailed(f"object {key!r} in {location.url} is not as expected", hint="read it again")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no object {key!r} in {location.url}")
    if status == "416" or code == "InvalidRange":
        return RangeBeyondEnd(f"the range is beyond the end of {key!r} in {location.url}")
    if isinstance(error, ValueError | exceptions.InvalidPathError | exceptions.UnknownConfigurationKeyError):
        return Invalid(f"{key!r} in {location.url}: {text}")
    detail = re.sub(r"\s+", " ", text)[:300]
    return Transient(f"no usable answer about {key!r} in {location.url} from {endpoint}: {detail}",
                     hint="check that the server is up and AWS_ENDPOINT_URL is right, then try again")


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(1) if match else None
