"""S3, everything that speaks its protocol, and R2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontolake.objects.credentials import HINT, VARIABLES, Credentials
from ontolake.objects.providers.base import Access, Provider
from ontolake.urls import Location


class S3Access(Access):
    def __init__(self, location: Location, credentials: Credentials) -> None:
        self._location = location
        self._credentials = credentials
        self.endpoint = credentials.endpoint or f"https://s3.{credentials.region}.amazonaws.com"
        self.namespace = credentials.endpoint or ""

    def obstore(self) -> dict[str, Any]:
        return self._credentials.obstore(self._location.bucket)

    def lance(self) -> tuple[str, dict[str, str] | None]:
        root = f"s3://{self._location.bucket}/{self._location.path}".rstrip("/")
        return root, self._credentials.lance(self._location.bucket)


class S3(Provider):
    """Amazon S3, and servers that speak its protocol at an endpoint of their own."""

    scheme = "s3"
    lance_name = "S3"
    variables = "AWS_"
    absent_codes = frozenset({"NoSuchBucket"})
    region_codes = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed",
                              "IllegalLocationConstraintException"})
    rights_codes = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch",
                              "AccessDenied"})
    busy_codes = frozenset({"ConditionalRequestConflict"})
    absent_hint = "create it, or check its name, AWS_ENDPOINT_URL and AWS_REGION"
    region_hint = "set AWS_REGION to the bucket's"
    rights_hint = f"check {VARIABLES}, and the rights they give"
    away_hint = "check that the server is up and AWS_ENDPOINT_URL is right, then try again"
    credentials_hint = HINT

    def access(self, location: Location, environ: Mapping[str, str] | None = None) -> Access:
        return S3Access(location, Credentials.from_env(location, environ))

    def client(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import S3Store

        return S3Store(bucket, **options)


class R2(S3):
    """Cloudflare R2: the protocol of S3 at the endpoint of an account."""

    scheme = "r2"
