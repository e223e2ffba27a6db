"""Who we are to S3 and R2, and where they are: the only place that reads the `AWS_*` variables.

What is read here is handed on in the words of each client: obstore, Lance and Spark's s3a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ontolake.errors import Invalid
from ontolake.objects.variables import Variables
from ontolake.urls import Location

HINT = ("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if they are temporary; "
        "profiles in ~/.aws are not read")
VARIABLES = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL"

# Signs that the client will find credentials by itself: roles of pods, containers, and functions.
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True)
class Credentials:
    """Keys, region and endpoint. Without keys, requests are signed with the machine's role, if it has one."""

    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint: str | None = None
    path_style: bool = True
    ca_bundle: str | None = None
    unsigned: bool = False

    @classmethod
    def from_env(cls, location: Location, environ: Mapping[str, str] | None = None) -> Credentials:
        """What the environment says for an `s3://` or `r2://` location.

        Raises `Invalid`, naming the variables, when credentials are missing or the endpoint cannot be used.
        """
        if location.scheme not in ("s3", "r2"):
            raise Invalid(f"{location.url!r} is neither on S3 nor on R2: the AWS_* variables are not for it")
        env = Variables(environ)
        endpoint = env.endpoint(location.url, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "AWS_ALLOW_HTTP")
        if location.scheme == "r2" and endpoint is None:
            raise Invalid(f"cannot open {location.url!r}: R2 has no common endpoint",
                          hint="set AWS_ENDPOINT_URL_S3=https://<account>.r2.cloudflarestorage.com")
        key, secret = env.value("AWS_ACCESS_KEY_ID"), env.value("AWS_SECRET_ACCESS_KEY")
        unsigned = env.flag("AWS_SKIP_SIGNATURE", False)
        if (key is None) != (secret is None):
            missing = "AWS_ACCESS_KEY_ID" if key is None else "AWS_SECRET_ACCESS_KEY"
            raise Invalid(f"cannot open {location.url!r}: {missing} is not set", hint=f"set {missing}")
        # A server with an address of its own knows nothing of the roles that AWS gives to its machines.
        roles_possible = endpoint is None and not env.flag("AWS_EC2_METADATA_DISABLED", False)
        if key is None and not unsigned and not roles_possible and env.value(*_ROLES) is None:
            raise Invalid(f"no credentials for the bucket {location.bucket!r} of {location.url!r}", hint=HINT)
        region = env.value("AWS_REGION", "AWS_DEFAULT_REGION") or ("auto" if location.scheme == "r2" else "us-east-1")
        return cls(
            access_key_id=key,
            secret_access_key=secret,
            session_token=env.value("AWS_SESSION_TOKEN"),
            region=region,
            endpoint=endpoint,
            path_style=env.flag("AWS_S3_FORCE_PATH_STYLE", True),
            ca_bundle=env.value("AWS_CA_BUNDLE"),
            unsigned=unsigned,
        )

    def obstore(self, bucket: str) -> dict[str, Any]:
        """Keyword arguments for `obstore.store.S3Store`; `client_options` among them."""
        options: dict[str, Any] = {**self._keys(), "region": self.region}
        endpoint = self._endpoint_of(bucket)
        if endpoint:
            options["endpoint"] = endpoint
        if not self.path_style:
            options["virtual_hosted_style_request"] = True
        if self.unsigned:
            options["skip_signature"] = True
        client: dict[str, Any] = {}
        if self._plain_http:
            client["allow_http"] = True
        elif self.ca_bundle:
            try:
                client["root_certificate"] = Path(self.ca_bundle).read_bytes()
            except OSError as error:
                raise Invalid(f"cannot read AWS_CA_BUNDLE {self.ca_bundle!r}: {error.strerror}",
                              hint="set it to a file of PEM certificates") from error
        options["client_options"] = client
        return options

    def lance(self, bucket: str) -> dict[str, str]:
        """`storage_options` for Lance."""
        options = {f"aws_{name}": value for name, value in self._keys().items()}
        if self.region:
            options["aws_region"] = self.region
        if endpoint := self._endpoint_of(bucket):
            options["aws_endpoint"] = endpoint
        options["aws_virtual_hosted_style_request"] = str(not self.path_style).lower()
        if self._plain_http:
            options["allow_http"] = "true"
        if self.unsigned:
            options["aws_skip_signature"] = "true"
        return options

    def spark(self) -> dict[str, str]:
        """Spark configuration for `s3a://` paths."""
        options: dict[str, str | None] = {
            "access.key": self.access_key_id,
            "secret.key": self.secret_access_key,
            "session.token": self.session_token,
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": str(self.path_style).lower(),
            "connection.ssl.enabled": "false" if self._plain_http else "true",
        }
        if self.unsigned:
            options["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
        elif self.session_token:
            options["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items() if value is not None}

    def _keys(self) -> dict[str, str]:
        keys = {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "session_token": self.session_token,
        }
        return {name: value for name, value in keys.items() if value is not None}

    @property
    def _plain_http(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")

    def _endpoint_of(self, bucket: str) -> str | None:
        """obstore and Lance want the bucket in the host name when it is not to be in the path."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, host = self.endpoint.split("://", 1)
        return f"{scheme}://{bucket}.{host}"
