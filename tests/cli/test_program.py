"""The installed program, once for each command: exit codes, streams, and answers that scripts can read."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.parametrize("url", ["file"], indirect=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("info", {"url", "kind", "engine", "format_version", "page_size", "durable_lsn", "branches", "bytes"}),
        ("storage info", {"url", "kind", "durable_lsn", "fence", "branches", "log_start", "bytes"}),
        ("storage wal", {"url", "branch", "after", "records"}),
        ("storage branch", {"url", "branches"}),
        ("storage branch create", {"url", "created"}),
        ("storage branch delete", {"url", "would_delete", "records", "token"}),
        ("storage compact", {"url", "pitr_floor", "freed", "bytes_before", "bytes_after"}),
        ("storage verify", {"url", "ok", "frames", "records", "branches", "pages", "damage"}),
    ],
)
def test_every_command_answers_with_one_document(program, url: str, command: str, keys: set[str]) -> None:
    name = {"create": ["new"], "delete": ["try"]}.get(command.split()[-1], [])
    done = program(*command.split(), url, *name, "--json")
    assert (done.code, done.err) == (0, "")
    assert keys <= done.document.keys()


@pytest.mark.slow
def test_an_error_has_its_code_and_leaves_standard_output_empty(program, url: str) -> None:
    done = program("info", f"{url}.not-there.db")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("error: there is nothing at")
