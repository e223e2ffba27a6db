"""A renamed primary or instance key: rows from before keep their keys, on every engine alike."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from ontolake.cli import main
from ontolake.ontology.verification import verify

from .conftest import fresh_memory
from .renamed import VERSIONS, extended, filled, opened, renamed

GOLDEN = Path(__file__).parent / "golden" / "phantoms_v1.zip"
PEOPLE: list[dict[str, int]] = [{}, {"ann": 1, "bob": 2, "cid": 3}, {"ann": 11, "bob": 2, "cid": 3},
                                {"ann": 11, "bob": 2, "cid": 3}, {"ann": 11, "bob": 22, "cid": 3}]  # fmt: skip


def people(session: Any, version: int, commit: int | None = None) -> list[tuple[str, int]]:
    query = session.query().entities(VERSIONS[version - 1][0])
    return sorted((one.code, one.age) for one in (query if commit is None else query.as_of(commit)).collect())


def links(session: Any, version: int, commit: int | None = None) -> list[tuple[str, str, str, int]]:
    query = session.query().relations(VERSIONS[version - 1][1])
    found = (query if commit is None else query.as_of(commit)).collect()
    return sorted((one.left_key, one.right_key, one.town, one.since) for one in found)


@pytest.mark.parametrize("place", ["objects", "sqlite"])
def test_rows_from_before_a_renamed_key_keep_their_keys(place: str, tmp_path: Path) -> None:
    url = fresh_memory() if place == "objects" else str(tmp_path / "store.db")
    renamed(url, "v1")
    resident = VERSIONS[1][0]
    with opened(url, 2) as session:
        assert people(session, 2) == sorted(PEOPLE[-1].items())
        assert links(session, 2) == [("ann", "bob", "Bonn", 1)]
        for commit, rows in enumerate(PEOPLE):
            assert people(session, 2, commit) == sorted(rows.items()), commit
            assert links(session, 2, commit) == [("ann", "bob", "Bonn", 1)][:commit], commit
            assert session.query().entities(resident).as_of(commit).sum(resident.age) == (sum(rows.values()) or None)
        history = session.query().entities(resident).with_history().collect()
        assert sorted((one.meta().commit_id, one.code) for one in history) == [
            (1, "ann"), (1, "bob"), (1, "cid"), (2, "ann"), (3, "ann"), (3, "bob"), (3, "cid"), (4, "bob")]
        found = session.query().entities(resident).where(resident.code == "ann").with_history().collect()
        assert [one.age for one in found] == [1, 11, 11]
        session.ensure([resident(code="ann", age=11)])
        assert session.commit() is None, "nothing differs"
    extended(url)
    with opened(url, 3) as session:
        assert people(session, 3) == sorted(PEOPLE[-1].items())
        assert links(session, 3) == [("ann", "bob", "Bonn", 1)]
        assert not list(verify(session.repository))


def test_rows_that_an_earlier_release_made_up_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(GOLDEN) as packed:
        packed.extractall(tmp_path / "lake")
    url = (tmp_path / "lake").as_uri()
    with opened(url, 3) as session:
        told = [one.where for one in verify(session.repository)]
    assert told == ["entity Resident, version 3: None at commit 5",
                    "relation Visits, version 3: ann, bob, None at commit 5"]
    assert main(["verify", url]) == 5
    out = capsys.readouterr().out
    assert all(where in out for where in told)
    assert "no commit declared this key" in out


def test_a_key_that_is_really_called_so_is_none_of_them(memory: str) -> None:
    filled(memory, "v1", "None")
    with opened(memory, 3) as session:
        assert people(session, 3) == [("None", 3), ("ann", 11), ("bob", 22)]
        assert not list(verify(session.repository))
