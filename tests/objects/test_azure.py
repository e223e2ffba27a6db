"""Azure: its variables, read in one place and said in the words of each client; refusals that say what to do."""

from __future__ import annotations

import base64
import hmac
import socket
from collections.abc import Callable
from urllib.parse import urlencode

import obstore
import pytest

from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed, StorageError, Transient
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.objects import ObjectStore, Range, open_store
from ontolake.objects.providers.azure import EMULATOR_KEY, AzureAccess, AzureCredentials
from ontolake.objects.responses import explain
from ontolake.objects.testing import AzuriteServer
from ontolake.urls import parse

AZ = parse("az://lake/some/prefix")
KEY = base64.b64encode(b"k" * 32).decode()
ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "shop"}
KEYS = {**ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
LOCAL = {**KEYS, "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9000/shop/", "AZURE_ALLOW_HTTP": "true"}


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def options(env: dict[str, str]) -> tuple[dict[str, object], dict[str, str] | None]:
    access = AzureAccess(AZ, AzureCredentials.from_env(AZ, env))
    return access.obstore(), access.lance()[1]


def test_an_account_and_its_key() -> None:
    assert options(KEYS) == (
        {"account_name": "shop", "account_key": KEY, "client_options": {}},
        {"azure_storage_account_name": "shop", "azure_storage_account_key": KEY})
    assert AzureCredentials.from_env(AZ, KEYS).endpoint == "https://shop.blob.core.windows.net"


def test_the_names_that_the_az_command_reads_do_too() -> None:
    assert options({"AZURE_STORAGE_ACCOUNT": "shop", "AZURE_STORAGE_KEY": KEY}) == options(KEYS)
    assert options({**KEYS, "AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "b3RoZXI="}) == options(KEYS)


def test_an_endpoint_of_its_own() -> None:
    assert options(LOCAL) == (
        {"account_name": "shop", "account_key": KEY, "endpoint": "http://127.0.0.1:9000/shop",
         "client_options": {"allow_http": True}},
        {"azure_storage_account_name": "shop", "azure_storage_account_key": KEY,
         "azure_storage_endpoint": "http://127.0.0.1:9000/shop", "allow_http": "true"})


@pytest.mark.parametrize(("env", "name", "lances"), [
    ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=2"}, "sas_key", "azure_storage_sas_key"),
    ({"AZURE_STORAGE_SAS_KEY": "sv=1&sig=2"}, "sas_key", "azure_storage_sas_key"),
    ({"AZURE_STORAGE_TOKEN": "bearer"}, "token", "azure_storage_token"),
    ({"AZURE_FEDERATED_TOKEN_FILE": "/token"}, "federated_token_file", "azure_federated_token_file"),
    ({"AZURE_CLIENT_SECRET": "s"}, "client_secret", "azure_storage_client_secret"),
    ({"AZURE_CLIENT_ID": "c"}, "client_id", "azure_storage_client_id"),
    ({"AZURE_TENANT_ID": "t"}, "tenant_id", "azure_storage_tenant_id"),
])
def test_other_credentials_reach_both_clients_alike(env: dict[str, str], name: str, lances: str) -> None:
    ours, lance = options({**ACCOUNT, **env})
    (value,) = env.values()
    assert ours[name] == value
    assert lance is not None
    assert lance[lances] == value
    assert "account_key" not in ours


def test_the_emulator_needs_nothing_else() -> None:
    assert options({"AZURE_STORAGE_USE_EMULATOR": "true"}) == (
        {"account_name": "devstoreaccount1", "account_key": EMULATOR_KEY, "client_options": {"allow_http": True},
         "endpoint": "http://127.0.0.1:10000/devstoreaccount1"},
        {"azure_storage_account_name": "devstoreaccount1", "azure_storage_account_key": EMULATOR_KEY,
         "azure_storage_endpoint": "http://127.0.0.1:10000/devstoreaccount1", "allow_http": "true"})


def test_public_containers_are_read_unsigned() -> None:
    ours, lance = options({**ACCOUNT, "AZURE_SKIP_SIGNATURE": "true"})
    assert ours["skip_signature"] is True
    assert lance is not None
    assert lance["azure_skip_signature"] == "true"


def test_secrets_are_not_shown() -> None:
    assert KEY not in repr(AzureCredentials.from_env(AZ, LOCAL))


@pytest.mark.parametrize(("env", "said"), [
    ({}, "AZURE_STORAGE_ACCOUNT_NAME"),
    ({"AZURE_STORAGE_ACCOUNT_KEY": KEY}, "AZURE_STORAGE_ACCOUNT_NAME"),
    ({**LOCAL, "AZURE_STORAGE_ACCOUNT_KEY": ""}, "AZURE_STORAGE_ACCOUNT_KEY"),
    ({**ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": "not a key!"}, "Base64"),
    ({**LOCAL, "AZURE_ALLOW_HTTP": ""}, "AZURE_ALLOW_HTTP"),
    ({**LOCAL, "AZURE_STORAGE_ENDPOINT": "shop:9000"}, "shop:9000"),
    ({**KEYS, "AZURE_STORAGE_USE_EMULATOR": "perhaps"}, "AZURE_STORAGE_USE_EMULATOR"),
])
def test_what_cannot_work_is_refused_and_named(env: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=r"az://lake|AZURE") as caught:
        AzureCredentials.from_env(AZ, env)
    assert said in str(caught.value)
    assert "not a key!" not in str(caught.value)


@pytest.mark.parametrize(("error", "expected", "said"), [
    (FileNotFoundError("404: <Code>BlobNotFound</Code>"), NotFound, "'k'"),
    (FileNotFoundError("404: <Code>ContainerNotFound</Code>"), Invalid, "AZURE_STORAGE_ACCOUNT_NAME"),
    (FileNotFoundError("Bulk delete request failed for key k: The specified container does not exist. (code: 404)"),
     Invalid, "container 'lake'"),
    (Exception("Bulk delete request failed for key k: This request is not authorized. (code: 403)"), Invalid, "403"),
    (Exception("status code: 403: <Code>AuthenticationFailed</Code>"), Invalid, "AZURE_STORAGE_ACCOUNT_KEY"),
    (obstore.exceptions.AlreadyExistsError("409: <Code>BlobAlreadyExists</Code>"), AlreadyExists, "'k'"),
    (obstore.exceptions.AlreadyExistsError("409: <Code>ContainerBeingDeleted</Code>"), Invalid, "does not exist"),
    (obstore.exceptions.AlreadyExistsError("409: <Code>BlobImmutableDueToPolicy</Code>"), Invalid, "no right"),
    (obstore.exceptions.PreconditionError("412: <Code>ConditionNotMet</Code>"), PreconditionFailed, "'k'"),
    (obstore.exceptions.PreconditionError("412: <Code>LeaseIdMissing</Code>"), Invalid, "LeaseIdMissing"),
    (Exception("Error performing GET http://169.254.169.254/metadata/identity"), Invalid, "AZURE_STORAGE_SAS_TOKEN"),
    (Exception("status code: 503: <Code>ServerBusy</Code>"), Transient, "AZURE_STORAGE_ENDPOINT"),
])
def test_what_azure_says_is_told_apart(error: Exception, expected: type[StorageError], said: str) -> None:
    ours = explain(error, "k", AZ, "http://end:1")
    assert type(ours) is expected
    assert said in str(ours)
    assert "AWS" not in str(ours)


def operations(store: ObjectStore) -> list[Callable[[], object]]:
    return [
        lambda: store.get("a"), lambda: store.get_range("a", 0, 1), lambda: store.put("a", b"1"),
        lambda: store.put_if_absent("a", b"1"), lambda: store.put_if_match("a", b"1", '"tag"'),
        lambda: list(store.list()), lambda: store.delete(["a"]), lambda: store.delete(["a", "b"]),
    ]


@pytest.mark.slow
def test_a_missing_container_is_named(azurite: AzuriteServer, azurite_url: str) -> None:
    store = open_store("az://no-such-container/prefix")
    for operation in operations(store):
        with pytest.raises(Invalid, match=r"container 'no-such-container' .* does not exist") as caught:
            operation()
        assert azurite.endpoint in str(caught.value)
        assert "AZURE_STORAGE_ACCOUNT_NAME" in str(caught.value)
    (answer,) = store.get_ranges([Range("a", 0, 1)])
    assert isinstance(answer, Invalid)


def signature(server: AzuriteServer, rights: str) -> str:
    """A shared access signature of the account, for blobs, as Azure describes it."""
    fields = {"sp": rights, "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z", "sip": "",
              "spr": "https,http", "sv": "2019-12-12"}
    text = "".join(f"{line}\n" for line in (server.access_key, *fields.values()))
    sig = base64.b64encode(hmac.digest(base64.b64decode(server.secret_key), text.encode(), "sha256")).decode()
    return urlencode({**{name: value for name, value in fields.items() if value}, "sig": sig})


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "?"])
def test_a_shared_access_signature_opens_objects_and_graphs(
    azurite: AzuriteServer, azurite_url: str, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Nothing is deleted: Azurite takes no batch of deletes with a signature."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"{mark}{signature(azurite, 'rwdlac')}")
    store = open_store(azurite_url)
    tag = store.put_if_absent("a", b"1")
    assert store.get("a") == (b"1", tag)
    Graph.init(f"{azurite_url}/graph", [Thing]).close()
    with Graph.open(f"{azurite_url}/graph") as graph:
        assert list(graph.verify()) == []
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"{mark}{signature(azurite, 'rl')}")
    reader = open_store(azurite_url)
    assert reader.get("a").data == b"1"
    with pytest.raises(Invalid, match="AZURE_STORAGE_SAS_TOKEN"):
        reader.put("a", b"2")


@pytest.mark.slow
def test_a_wrong_key_is_refused(azurite: AzuriteServer, azurite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"wrong").decode())
    for operation in operations(open_store(azurite_url)):
        with pytest.raises(Invalid, match="'test'") as caught:
            operation()
        assert "AZURE_STORAGE_ACCOUNT_KEY" in str(caught.value)
        assert azurite.endpoint in str(caught.value)


@pytest.mark.slow
def test_an_endpoint_where_nobody_listens_is_transient(azurite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}/ontolake"
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
        with pytest.raises(Transient, match=endpoint) as caught:
            open_store(azurite_url).put_if_absent("a", b"1")
    assert "AZURE_STORAGE_ENDPOINT" in str(caught.value)


@pytest.mark.slow
def test_more_than_a_batch_is_deleted_with_names_that_are_missing(azurite_url: str) -> None:
    """One request takes 256 names, and gives up at one that is not there."""
    store = open_store(azurite_url)
    for number in (0, 1, 200, 257):
        store.put(f"k{number:03}", b"1")
    store.delete([f"k{number:03}" for number in range(258)])
    assert list(store.list()) == []
    store.put("kept", b"1")
    store.delete(["gone"])
    assert [info.key for info in store.list()] == ["kept"]


@pytest.mark.slow
def test_a_listing_starts_after_a_key(azurite_url: str) -> None:
    """A server may send all that is before it as well."""
    store = open_store(azurite_url)
    for key in ("a/1", "a/2", "a/3", "a/3/x", "b"):
        store.put(key, b"1")
    assert [info.key for info in store.list("a/", after="a/2")] == ["a/3", "a/3/x"]
    assert [info.key for info in store.list(after="a/3")] == ["a/3/x", "b"]
