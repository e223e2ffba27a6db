"""Files of statements and queries give the same rows on our tables and on SQLite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from ontolake.sql import Database, SqlError

FILES = sorted((Path(__file__).parent / "files").glob("*.test"))


def records(file: Path) -> list[tuple[str, str]]:
    """What a file asks for: `statement`, `query` or `error SQLSTATE`, and the SQL below it."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    return [(head.strip(), sql.strip()) for head, _, sql in
            (block.partition("\n") for block in re.split(r"\n\s*\n", text.strip()))]  # fmt: skip


def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(int(cell) if isinstance(cell, bool) else cell for cell in row)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file(file: Path, db: Database) -> None:
    oracle = apsw.Connection(":memory:")
    for kind, sql in records(file):
        if kind == "statement":
            db.execute(sql)
            oracle.execute(sql)
        elif kind == "query":
            ours = [shown(row) for row in db.execute(sql).fetchall()]
            theirs = oracle.execute(sql).fetchall()
            if "ORDER BY" in sql.upper().rsplit(")", 1)[-1]:
                assert ours == theirs, sql
            else:
                assert sorted(ours, key=repr) == sorted(theirs, key=repr), sql
        else:
            with pytest.raises(SqlError) as raised:
                db.execute(sql)
            assert raised.value.sqlstate == kind.removeprefix("error "), sql
    assert list(db.verify()) == []


def test_there_are_files() -> None:
    assert [file.stem for file in FILES] == ["aggregates", "changes", "joins", "limits", "nulls", "windows"]
