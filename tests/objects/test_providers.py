"""Providers: one object a scheme, and none stands in for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake import documents, engine, urls
from ontolake.errors import Invalid
from ontolake.graph import Graph
from ontolake.objects import open_store
from ontolake.objects.credentials import Credentials
from ontolake.objects.providers import PROVIDERS, provider_of
from ontolake.objects.responses import explain
from ontolake.ontology import Session
from ontolake.sql import open_database
from ontolake.storage import open_storage

AWS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": "https://s3.example.org"}


def test_every_scheme_of_object_storage_has_a_provider() -> None:
    assert list(PROVIDERS) == list(urls.BUCKETS)
    for scheme, provider in PROVIDERS.items():
        assert provider_of(urls.parse(f"{scheme}://bucket/p")) is provider
        assert provider.scheme == scheme


@pytest.mark.parametrize("use", [
    open_store,
    urls.detect,
    lambda url: open_storage(url, page_size=4096),
    lambda url: engine.connect(f"sqlite+{url}"),
    lambda url: documents.open_space(url, "s"),
    lambda url: open_database(f"sqlite+{url}"),
    lambda url: Session(url, entity_types=[]),
    lambda url: Graph.open(url),
    lambda url: Credentials.from_env(urls.parse(url)),
    lambda url: explain(Exception("no"), "k", urls.parse(url), "http://end:1"),
], ids=["objects", "detect", "storage", "engine", "documents", "sql", "typed", "graph", "credentials", "responses"])
def test_an_unknown_provider_is_never_taken_for_s3(
    use: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheme that URLs know and no provider has, as after half of a change. The variables of S3 would suffice."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(urls, "SCHEMES", (*urls.SCHEMES, "oss"))
    with pytest.raises(Invalid, match="oss://bucket/p"):
        use("oss://bucket/p")


@pytest.mark.parametrize(("scheme", "root"), [("s3", "s3"), ("r2", "s3"), ("gs", "gs"), ("az", "az")])
def test_lance_gets_an_address_that_it_knows(scheme: str, root: str) -> None:
    env = {**AWS, "AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    location = urls.parse(f"{scheme}://bucket/some/prefix")
    assert provider_of(location).access(location, env).lance()[0] == f"{root}://bucket/some/prefix"


def test_workers_elsewhere_get_the_variables_of_s3_and_azure() -> None:
    environ = {"AWS_REGION": "eu-west-1", "AZURE_STORAGE_ACCOUNT_NAME": "account", "HOME": "/root",
               "GOOGLE_APPLICATION_CREDENTIALS": "/here/key.json"}
    settings: dict[str, str] = {}
    for provider in PROVIDERS.values():
        settings |= provider.executor_settings(environ)
    assert settings == {"spark.executorEnv.AWS_REGION": "eu-west-1",
                        "spark.executorEnv.AZURE_STORAGE_ACCOUNT_NAME": "account"}


def test_places_of_one_name_are_told_apart_by_endpoint_and_account() -> None:
    def namespace(url: str, **env: str) -> str:
        location = urls.parse(url)
        return provider_of(location).access(location, env).namespace

    keys = {name: value for name, value in AWS.items() if name != "AWS_ENDPOINT_URL"}
    assert namespace("s3://b/p", **keys, AWS_REGION="a") == namespace("s3://b/p", **keys, AWS_REGION="b") == ""
    assert namespace("s3://b/p", **AWS) == "https://s3.example.org"
    accounts = [namespace("az://bbb/p", AZURE_STORAGE_ACCOUNT_NAME=name, AZURE_STORAGE_ACCOUNT_KEY="a2V5")
                for name in ("one", "two")]
    assert accounts == ["https://one.blob.core.windows.net", "https://two.blob.core.windows.net"]


@pytest.mark.parametrize("url", ["az://ab/p", "az://Upper/p", "az://two--dashes/p", "az://-x-/p", "az://a.b.c/p",
                                 f"az://{'x' * 64}/p", "az://under_score/p"])
def test_a_name_that_no_container_can_have_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="container") as caught:
        urls.parse(url)
    assert "AZURE_" in str(caught.value)


def test_a_url_of_azure_needs_a_container() -> None:
    with pytest.raises(Invalid, match="it has no container") as caught:
        urls.parse("az://")
    assert "az://container/prefix" in str(caught.value)
    assert urls.parse(f"az://{'x' * 63}/a/b/").path == "a/b"


def test_only_providers_read_the_variables_of_clouds() -> None:
    """Nowhere else in the library is such a name written, but in the servers for tests."""
    source = Path(urls.__file__).parent
    allowed = {source / "objects" / "credentials.py", *(source / "objects" / "providers").iterdir(),
               *(source / "objects" / "testing").iterdir()}
    reading = [str(file) for file in source.rglob("*.py") if file not in allowed
               for line in file.read_text().splitlines()
               if "environ" in line and ("AWS_" in line or "AZURE_" in line)]
    assert reading == []
