"""Google Cloud Storage. obstore and Lance read the variables of Google by themselves, and alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontolake.objects.providers.base import Access, Provider
from ontolake.urls import Location


class GoogleAccess(Access):
    endpoint = "https://storage.googleapis.com"
    namespace = ""

    def __init__(self, location: Location) -> None:
        self._location = location

    def obstore(self) -> dict[str, Any]:
        return {"client_options": {}}

    def lance(self) -> tuple[str, dict[str, str] | None]:
        return f"gs://{self._location.bucket}/{self._location.path}".rstrip("/"), None


class GoogleStorage(Provider):
    """Google Cloud Storage: conditional writes name a generation, and deletes go one by one.

    No variable is handed on to other machines: `GOOGLE_APPLICATION_CREDENTIALS` names a file of this one.
    """

    scheme = "gs"
    lance_name = "GCS"
    version_field = "version"
    deletes_many = False
    absent_codes = frozenset({"NoSuchBucket"})
    rights_codes = frozenset({"AccessDenied", "InvalidSecurity", "ExpiredToken"})
    absent_hint = "create it, or check its name"
    rights_hint = "check GOOGLE_APPLICATION_CREDENTIALS, and the rights of that service account"
    away_hint = "check the network, then try again"
    credentials_hint = "set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file"

    def access(self, location: Location, environ: Mapping[str, str] | None = None) -> Access:
        return GoogleAccess(location)

    def client(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import GCSStore

        return GCSStore(bucket, **options)
