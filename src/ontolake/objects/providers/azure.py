"""Azure Blob Storage: the only place that reads the `AZURE_*` variables.

What is read here is handed on in the words of each client, obstore and Lance, so that both see the same.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ontolake.errors import Invalid
from ontolake.objects.providers.base import Access, Provider
from ontolake.objects.variables import Variables
from ontolake.urls import Location

EMULATOR = "http://127.0.0.1:10000"
"""Where Azurite listens unless told otherwise."""
EMULATOR_ACCOUNT = "devstoreaccount1"
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and key that every emulator knows. They are published, and no secret."""

ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
KEY = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY")
ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


class _Setting(NamedTuple):
    """A credential: what Lance calls it, and the variables that may hold it."""

    lance: str
    variables: tuple[str, ...]


_CREDENTIALS = {
    "account_key": _Setting("azure_storage_account_key", KEY),
    "sas_key": _Setting("azure_storage_sas_key", ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")),
    "token": _Setting("azure_storage_token", ("AZURE_STORAGE_TOKEN",)),
    "client_id": _Setting("azure_storage_client_id", ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")),
    "client_secret": _Setting("azure_storage_client_secret", ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")),
    "tenant_id": _Setting("azure_storage_tenant_id", ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")),
    "authority_host": _Setting("azure_storage_authority_host",
                               ("AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST")),
    "federated_token_file": _Setting("azure_federated_token_file", ("AZURE_FEDERATED_TOKEN_FILE",)),
    "msi_endpoint": _Setting("azure_msi_endpoint", ("AZURE_MSI_ENDPOINT", "AZURE_IDENTITY_ENDPOINT")),
}
"""By the names that obstore has for them."""

_SUFFICIENT = ("account_key", "sas_key", "token", "client_secret", "federated_token_file", "msi_endpoint")
"""Any of these lets requests be authorized."""


@dataclass(frozen=True)
class AzureCredentials:
    """An account, its endpoint, and who we are to it. Without credentials, the identity of the machine is used."""

    account: str
    endpoint: str
    own_endpoint: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    unsigned: bool = False

    @classmethod
    def from_env(cls, location: Location, environ: Mapping[str, str] | None = None) -> AzureCredentials:
        """What the environment says for an `az://` location.

        Raises `Invalid`, naming the variables, when the account or credentials are missing, when the key is not one, or
        when the endpoint cannot be used.
        """
        env = Variables(environ)
        account = env.value(*ACCOUNT)
        found = {name: env.value(*setting.variables) for name, setting in _CREDENTIALS.items()}
        credentials = {name: value for name, value in found.items() if value is not None}
        endpoint = env.endpoint(location.url, ENDPOINT, "AZURE_ALLOW_HTTP")
        if env.flag("AZURE_STORAGE_USE_EMULATOR", False):
            account = account or EMULATOR_ACCOUNT
            if account == EMULATOR_ACCOUNT and not any(name in credentials for name in _SUFFICIENT):
                credentials["account_key"] = EMULATOR_KEY
            endpoint = endpoint or f"{EMULATOR}/{account}"
        if account is None:
            raise Invalid(f"cannot open {location.url!r}: the storage account of the container {location.bucket!r} is "
                          f"not known: {ACCOUNT[0]} is not set", hint=f"set {ACCOUNT[0]}, and {KEY[0]}")
        unsigned = env.flag("AZURE_SKIP_SIGNATURE", False)
        # A server that speaks plain HTTP is an emulator, and knows nothing of the identities of Azure's machines.
        plain = endpoint is not None and endpoint.startswith("http://")
        if plain and not unsigned and not any(name in credentials for name in _SUFFICIENT):
            raise AzureStorage().missing_credentials(location)
        _check_key(credentials.get("account_key"), location)
        return cls(account=account, endpoint=endpoint or f"https://{account}.blob.core.windows.net",
                   own_endpoint=endpoint is not None, credentials=credentials, unsigned=unsigned)

    @property
    def plain_http(self) -> bool:
        return self.endpoint.startswith("http://")


def _check_key(key: str | None, location: Location) -> None:
    try:
        base64.b64decode(key or "", validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"cannot open {location.url!r}: {KEY[0]} is not a key: it is not in Base64",
                      hint="copy the key as the storage account shows it, with = at its end") from None


class AzureAccess(Access):
    def __init__(self, location: Location, credentials: AzureCredentials) -> None:
        self._location = location
        self._credentials = credentials
        self.endpoint = credentials.endpoint
        self.namespace = credentials.endpoint

    def obstore(self) -> dict[str, Any]:
        found = self._credentials
        options: dict[str, Any] = {"account_name": found.account, **found.credentials,
                                   "client_options": {"allow_http": True} if found.plain_http else {}}
        if found.own_endpoint:
            options["endpoint"] = found.endpoint
        if found.unsigned:
            options["skip_signature"] = True
        return options

    def lance(self) -> tuple[str, dict[str, str] | None]:
        found = self._credentials
        options = {"azure_storage_account_name": found.account,
                   **{_CREDENTIALS[name].lance: value for name, value in found.credentials.items()}}
        if found.own_endpoint:
            options["azure_storage_endpoint"] = found.endpoint
        if found.plain_http:
            options["allow_http"] = "true"
        if found.unsigned:
            options["azure_skip_signature"] = "true"
        return f"az://{self._location.bucket}/{self._location.path}".rstrip("/"), options


class AzureStorage(Provider):
    """Azure Blob Storage. Version tags change with every write, so that no two contents share one."""

    scheme = "az"
    container = "container"
    lance_name = "MicrosoftAzure"
    variables = "AZURE_"
    # `ResourceNotFound` is what somebody hears who may not even know of a container, or names another account.
    absent_codes = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled", "ResourceNotFound"})
    rights_codes = frozenset({
        "AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch", "AccountIsDisabled",
        "InsufficientAccountPermissions", "InvalidAuthenticationInfo", "KeyBasedAuthenticationNotPermitted",
        "NoAuthenticationInformation", "PublicAccessNotPermitted", "LeaseIdMissing", "BlobImmutableDueToPolicy",
        "BlobImmutableDueToLegalHold"})
    busy_codes = frozenset({"PendingCopyOperation", "BlobBeingRehydrated"})
    absent_hint = f"create it, or check its name, {ACCOUNT[0]} and {ENDPOINT[0]}"
    rights_hint = f"check {ACCOUNT[0]}, {KEY[0]} or AZURE_STORAGE_SAS_TOKEN, and the rights they give"
    away_hint = f"check that the server is up, and {ACCOUNT[0]} and {ENDPOINT[0]} are right, then try again"
    credentials_hint = (f"set {KEY[0]} or AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and "
                        "AZURE_TENANT_ID; connection strings and the login of the az command are not read")

    def access(self, location: Location, environ: Mapping[str, str] | None = None) -> Access:
        return AzureAccess(location, AzureCredentials.from_env(location, environ))

    def client(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import AzureStore

        return AzureStore(bucket, **options)

    def code(self, text: str) -> str | None:
        # A part of a batch of deletes says it in words only.
        return "ContainerNotFound" if "specified container does not exist" in text else None
