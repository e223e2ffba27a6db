"""The contract of a provider: all that differs between object stores, and nothing that does not."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ontolake.errors import Invalid
from ontolake.urls import Location


class Access(ABC):
    """The way to one location, as the environment says: credentials and endpoint, in the words of each client."""

    endpoint: str
    """The address that requests go to, for messages."""
    namespace: str
    """Where the name of a bucket is unique; empty if it is unique in the world. Tells places of one name apart."""

    @abstractmethod
    def obstore(self) -> dict[str, Any]:
        """Keyword arguments for the client of obstore; `client_options` among them."""

    @abstractmethod
    def lance(self) -> tuple[str, dict[str, str] | None]:
        """The address of the location in Lance's words, and `storage_options`; None if Lance finds them by itself."""


class Provider(ABC):
    """One kind of object store. The attributes say how it answers; sets hold the error codes of its servers."""

    scheme: ClassVar[str]
    container: ClassVar[str] = "bucket"
    """What it calls the thing that a URL names first."""
    lance_name: ClassVar[str]
    """What errors of Lance call it."""
    version_field: ClassVar[str] = "e_tag"
    """What obstore's answers call the version that a conditional write names."""
    deletes_many: ClassVar[bool] = True
    """Whether it has a request that deletes many objects."""
    variables: ClassVar[str] = ""
    """How the names of its variables begin that workers on other machines need; empty if none can be handed on."""

    absent_codes: ClassVar[frozenset[str]] = frozenset()
    """There is no such bucket."""
    region_codes: ClassVar[frozenset[str]] = frozenset()
    """The bucket is in another region."""
    rights_codes: ClassVar[frozenset[str]] = frozenset()
    """The credentials are wrong, or do not suffice."""
    busy_codes: ClassVar[frozenset[str]] = frozenset()
    """Two writers met, and the loser is to try again."""

    absent_hint: ClassVar[str]
    region_hint: ClassVar[str] = ""
    rights_hint: ClassVar[str]
    away_hint: ClassVar[str]
    credentials_hint: ClassVar[str]

    @abstractmethod
    def access(self, location: Location, environ: Mapping[str, str] | None = None) -> Access:
        """The way to a location of this provider.

        Raises `Invalid`, naming the variables, when credentials are missing or the endpoint cannot be used.
        """

    @abstractmethod
    def client(self, bucket: str, options: dict[str, Any]) -> Any:
        """A client of obstore for a bucket. Raises what obstore raises."""

    def code(self, text: str) -> str | None:
        """The error code in what obstore tells of a server's answer, where it is not in an element of XML."""
        return None

    def missing_credentials(self, location: Location) -> Invalid:
        """The error for a location that needs credentials where there are none."""
        return Invalid(f"no credentials for the {self.container} {location.bucket!r} of {location.url!r}",
                       hint=self.credentials_hint)

    def executor_settings(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Settings of Spark that hand the variables of this process on to workers on other machines."""
        found = os.environ if environ is None else environ
        if not self.variables:
            return {}
        return {f"spark.executorEnv.{name}": value for name, value in found.items() if name.startswith(self.variables)}
