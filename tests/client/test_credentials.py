"""Where tokens come from, and that nobody else can read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ontolake import urls
from ontolake.client.address import StoreAddress, origin
from ontolake.client.credentials import credentials_file, find_token, read_tokens, save_token
from ontolake.errors import Invalid

SERVER = "http://host:8400"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ONTO_TOKEN", raising=False)
    monkeypatch.delenv("ONTO_CREDENTIALS", raising=False)


def test_a_token_that_is_given_counts_more_than_the_environment_and_that_more_than_the_file(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_token(SERVER) is None
    save_token(SERVER, "kept")
    assert find_token(SERVER) == "kept"
    monkeypatch.setenv("ONTO_TOKEN", "set")
    assert find_token(SERVER) == "set"
    assert find_token(SERVER, "given") == "given"


def test_a_kept_token_goes_to_its_own_server_alone() -> None:
    save_token("HTTP://Host:8400/shop", "kept")
    assert find_token("http://host:8400") == "kept"
    for other in ("https://host:8400", "http://host:8401", "http://host", "http://host.example:8400"):
        assert find_token(other) is None
    save_token("https://lake.example:443", "other")
    assert find_token("https://lake.example") == "other"


def test_the_file_is_for_its_owner_alone_and_a_token_can_be_forgotten() -> None:
    file = save_token(SERVER, "kept")
    assert file == credentials_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    save_token(SERVER, None)
    assert read_tokens() == {}
    assert sorted(os.listdir(file.parent)) == [file.name]


def test_a_file_that_others_can_read_is_refused() -> None:
    file = save_token(SERVER, "kept")
    file.chmod(0o640)
    with pytest.raises(Invalid, match="chmod 600"):
        find_token(SERVER)
    assert find_token(SERVER, "given") == "given"


@pytest.mark.parametrize("text", ["", "[]", '{"http://host": 5}', '{"nowhere": "x"}', "\xff"])
def test_a_damaged_file_is_refused_and_named(text: str) -> None:
    file = save_token(SERVER, "kept")
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(Invalid):
        find_token(SERVER)


def test_another_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTO_CREDENTIALS", str(tmp_path / "mine.json"))
    assert save_token(SERVER, "kept") == tmp_path / "mine.json"
    assert find_token(SERVER) == "kept"


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ä", 5])
def test_what_cannot_be_a_token_is_refused(token: str) -> None:
    with pytest.raises(Invalid):
        find_token(SERVER, token)


def test_a_store_behind_a_server_has_an_address() -> None:
    address = StoreAddress.parse("https://Host/behind/my%20shop")
    assert address == ("https://host/behind", "my shop")
    assert address.path == "/api/v1/stores/my%20shop"
    assert address.url == "https://host/behind/my%20shop"
    for wrong in ("shop.db", "s3://bucket/x", "http://host"):
        with pytest.raises(Invalid):
            StoreAddress.parse(wrong)
    for wrong in ("host", "ftp://host", "http://", "http://me@host"):
        with pytest.raises(Invalid):
            origin(wrong)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(Invalid) as caught:
        urls.parse("http://me:secret@host:8400/shop")
    assert "secret" not in str(caught.value)
