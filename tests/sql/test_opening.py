"""Where a database may be opened, and what is refused."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ontolake.errors import Invalid, OntolakeError
from ontolake.sql import open_database


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Invalid, match=r"file.* is no folder for"):
        open_database(f"sqlite:///{tmp_path}/file/shop.db")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_database_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(place))
    theirs.execute("CREATE TABLE t (a)")
    theirs.close()
    before = place.read_bytes()
    with pytest.raises(OntolakeError, match="is a database, but not"):
        open_database(f"sqlite:///{place}")
    assert place.read_bytes() == before


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "newer.db"
    open_database(f"sqlite:///{place}").close()
    raw = apsw.Connection(str(place))
    raw.pragma("user_version", 99)
    raw.close()
    with pytest.raises(OntolakeError, match="layout version 99") as raised:
        open_database(f"sqlite:///{place}")
    assert "newer version" in raised.value.hint
