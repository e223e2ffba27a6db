"""The configuration of a server, and what it refuses to start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ontolake import sql
from ontolake.cli import main
from ontolake.documents import open_space
from ontolake.errors import Invalid, NotFound, SafetyRefusal
from ontolake.server.config import ServerConfig, StoreSection, TlsSection, named_urls, read_config


def _written(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_a_file_says_everything(tmp_path: Path) -> None:
    config = read_config(_written(tmp_path, """
        port = 9000
        tokens = "tokens.json"
        [stores]
        shop = "shop.db"
        lake = { url = "s3://lake/graph", readonly = true }
        [tls]
        certificate = "a.pem"
        key = "/etc/a.key"
        [limits]
        rows = 5
        [cors]
        origins = ["https://shop.example"]
        """))  # fmt: skip
    assert (config.host, config.port, config.tokens) == ("127.0.0.1", 9000, str(tmp_path / "tokens.json"))
    assert config.served() == {"shop": StoreSection(str(tmp_path / "shop.db")),
                               "lake": StoreSection("s3://lake/graph", True)}  # fmt: skip
    assert config.tls == TlsSection(str(tmp_path / "a.pem"), "/etc/a.key")
    assert (config.limits.rows, config.cors.origins) == (5, ("https://shop.example",))


@pytest.mark.parametrize(("text", "named"), [
    ("prot = 1", "prot"), ("[limits]\nbdoy = 1", "bdoy"), ("[limits]\nbdoy = 1", "limits"), ("port = 'x'", "port"),
    ("[stores]\na = 1", "stores"), ("[stores]\na = { uri = 'x' }", "uri"), ("[tls]\nkey = 'a'", "certificate"),
    ("[limits]\nbody = 0", "body"), ("port = ", "Invalid value"),
    ("[cors]\norigins = 'x'", "cors.origins")])  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_config(_written(tmp_path, text))
    assert named in caught.value.message
    assert "server.toml" in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        read_config(tmp_path / "nowhere.toml")


STORES: dict[str, Any] = {"shop": "shop.db"}
TLS = TlsSection("a", "b")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com"])
def test_a_network_needs_tokens_and_tls(host: str) -> None:
    with pytest.raises(SafetyRefusal, match="no tokens"):
        ServerConfig(host=host, stores=STORES, tls=TLS).check(has_tokens=False)
    with pytest.raises(SafetyRefusal, match="without TLS"):
        ServerConfig(host=host, stores=STORES).check(has_tokens=True)
    with pytest.raises(SafetyRefusal, match="no tokens"):
        ServerConfig(host=host, stores=STORES, insecure=True).check(has_tokens=False)
    ServerConfig(host=host, stores=STORES, insecure=True).check(has_tokens=True)
    ServerConfig(host=host, stores=STORES, tls=TLS).check(has_tokens=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_neither(host: str) -> None:
    ServerConfig(host=host, stores=STORES).check(has_tokens=False)


@pytest.mark.parametrize("stores", [{}, {"a/b": "x"}, {"": "x"}, {"..": "x"}, {"-x": "x"}])
def test_names_that_cannot_stand_in_an_address_are_refused(stores: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        ServerConfig(stores=stores).check(has_tokens=True)


def test_names_come_from_urls_and_a_folder_gives_its_spaces(tmp_path: Path) -> None:
    for name in ("notes", "plans"):
        open_space(f"{tmp_path}/spaces/", name).close()
    sql.open_database(str(tmp_path / "shop.db")).close()
    found = named_urls([str(tmp_path / "shop.db"), f"{tmp_path}/spaces/"])
    assert found == {"shop": str(tmp_path / "shop.db"), "notes": str(tmp_path / "spaces" / "notes.sqlite"),
                     "plans": str(tmp_path / "spaces" / "plans.sqlite")}  # fmt: skip
    with pytest.raises(Invalid, match="both be served as 'shop'"):
        named_urls([str(tmp_path / "shop.db"), f"sqlite:///{tmp_path}/shop.db"])
    with pytest.raises(NotFound):
        named_urls([str(tmp_path / "nothing.db")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="no store in the folder"):
        named_urls([str(tmp_path / "empty")])


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["--host", "0.0.0.0"], 7, "no tokens"), (["nothing.db"], 5, "nothing.db"),
    (["--config", "nothing.toml"], 5, "toml"),
    (["--port", "99999"], 2, "99999")])  # fmt: skip
def test_the_command_says_why_it_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str],
    code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("ONTO_TOKENS", str(tmp_path / "tokens.json"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    sql.open_database(str(tmp_path / "shop.db")).close()
    assert main(["serve", str(tmp_path / "shop.db"), *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_server_without_stores_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTO_TOKENS", str(tmp_path / "tokens.json"))
    assert main(["serve"]) == 2
