"""Tokens: shown once, stored as a digest, revocable, and known to running servers at once."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ontolake.cli import main
from ontolake.errors import AlreadyExists, Invalid, NotFound, SafetyRefusal
from ontolake.server.rights import Principal, TokenScope
from ontolake.server.tokens import PREFIX, TokenFile, TokenRequest, digest


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


def test_a_token_is_stored_as_a_digest_in_a_file_for_its_owner_alone(tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ci", "write", ("shop",), ("try-*",)))
    assert secret.startswith(PREFIX)
    assert len(secret) > 40
    text = tokens.path.read_text()
    assert secret not in text
    assert digest(secret) in text
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert tokens.authenticate(secret) == Principal("ci", TokenScope.WRITE, ("shop",), ("try-*",))


@pytest.mark.parametrize("wrong", ["", "onto_", "é", "\udc80", "x" * 100_000])
def test_what_is_no_token_is_nobody(tokens: TokenFile, wrong: str) -> None:
    secret = tokens.create(TokenRequest("ci"))
    assert tokens.authenticate(wrong) is None
    assert tokens.authenticate(secret[:-1]) is None
    assert tokens.authenticate(digest(secret)) is None


def test_another_process_sees_what_is_created_and_revoked(tokens: TokenFile) -> None:
    server = TokenFile(tokens.path)
    secret = tokens.create(TokenRequest("ci"))
    assert server.authenticate(secret) is not None
    tokens.revoke("ci")
    assert server.authenticate(secret) is None
    with pytest.raises(NotFound, match="'ci'"):
        tokens.revoke("ci")


def test_a_token_expires(tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ci", lifetime=timedelta(days=1)))
    other = tokens.create(TokenRequest("dev", lifetime=timedelta(days=1)))
    stored = msgspec.json.decode(tokens.path.read_bytes())
    (ours,) = (one for one in stored["tokens"] if one["name"] == "ci")
    ours["expires"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    tokens.path.write_bytes(msgspec.json.encode(stored))
    opened = TokenFile(tokens.path)  # which has nothing in mind, and nothing to write beside the test
    assert opened.authenticate(secret) is None
    assert opened.authenticate(other) is not None


def test_the_last_use_is_kept(tokens: TokenFile) -> None:
    tokens.authenticate(tokens.create(TokenRequest("ci")))
    tokens.save_uses()
    used = TokenFile(tokens.path).list()[0].used
    assert used is not None
    assert datetime.now(UTC) - used < timedelta(minutes=2)


@pytest.mark.parametrize("wanted", [
    TokenRequest(""), TokenRequest("a b"), TokenRequest("ci", "root"), TokenRequest("ci", stores=()),
    TokenRequest("ci", branches=("",)), TokenRequest("ci", lifetime=timedelta())])  # fmt: skip
def test_tokens_that_cannot_be_are_refused(tokens: TokenFile, wanted: TokenRequest) -> None:
    with pytest.raises(Invalid):
        tokens.create(wanted)
    assert not tokens.path.exists()


def test_two_tokens_have_two_names(tokens: TokenFile) -> None:
    tokens.create(TokenRequest("ci"))
    with pytest.raises(AlreadyExists, match="'ci'"):
        tokens.create(TokenRequest("ci"))


def test_a_file_that_others_may_read_is_refused(tokens: TokenFile) -> None:
    tokens.create(TokenRequest("ci"))
    os.chmod(tokens.path, 0o644)
    with pytest.raises(SafetyRefusal, match="others may read"):
        TokenFile(tokens.path).list()


@pytest.mark.parametrize("content", [
    "", "[]", '{"tokens": [{"name": "a"}]}',
    '{"tokens": [{"name": "a", "scope": "root", "sha256": "", "created": "2026-01-01T00:00:00Z"}]}'])
def test_a_file_with_something_else_is_refused(tokens: TokenFile, content: str) -> None:
    tokens.path.write_text(content)
    os.chmod(tokens.path, 0o600)
    with pytest.raises(Invalid, match=r"tokens\.json"):
        tokens.list()


def test_the_command_makes_lists_and_revokes_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONTO_TOKENS", str(tmp_path / "made" / "tokens.json"))
    made = ["token", "create", "--name", "ci", "--scope", "write", "--store", "shop", "--branch", "try-*"]
    assert main([*made, "--expires", "30d"]) == 0
    secret = capsys.readouterr().out.strip()
    assert main(["token", "list", "--json"]) == 0
    told = capsys.readouterr().out
    assert secret not in told
    one = json.loads(told)["tokens"][0]
    assert (one["name"], one["scope"], one["stores"], one["branches"]) == ("ci", "write", ["shop"], ["try-*"])
    assert main([*made, "--expires", "soon"]) == 2
    assert "'soon'" in capsys.readouterr().err
    assert main(["token", "revoke", "ci"]) == 0
    assert main(["token", "revoke", "ci"]) == 5
