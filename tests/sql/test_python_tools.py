"""pandas, Polars and Alembic on SQL tables in this process."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from ontolake.sql import dbapi


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"ontolake:///{tmp_path}/shop.db")
    yield engine
    engine.dispose()


@pytest.mark.slow
def test_pandas_writes_and_reads(engine: sa.Engine, tmp_path: Path) -> None:
    times = pd.to_datetime(["2026-01-01 10:00", None, "2026-01-03 11:30"])
    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "ü"], "total": [1.5, None, -2.0],
                          "ok": [True, False, True], "day": times, "at": times.tz_localize("UTC")})  # fmt: skip
    options: tuple[dict[str, Any], ...] = (
        {}, {"if_exists": "append"}, {"if_exists": "append", "method": "multi"},
        {"if_exists": "append", "chunksize": 2},
        {"if_exists": "replace", "schema": "public", "dtype": {"name": sa.Text}},
    )  # fmt: skip
    for count, option in zip((3, 6, 9, 12, 3), options, strict=True):
        assert frame.to_sql("frames", engine, index=False, **option) == 3
        assert len(pd.read_sql("frames", engine)) == count
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("frames", engine)
    back = pd.read_sql_table("frames", engine)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    found = pd.read_sql(sa.text("SELECT name FROM frames WHERE id = :id"), engine, params={"id": 3})
    assert found["name"].tolist() == ["ü"]
    assert [len(each) for each in pd.read_sql("SELECT * FROM frames", engine, chunksize=2)] == [2, 1]
    connection = dbapi.connect(f"{tmp_path}/shop.db")
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        assert pd.read_sql("SELECT id FROM frames WHERE total > ?", connection, params=(0,))["id"].tolist() == [1]
    connection.close()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("polars") is None, reason="make tools brings Polars")
def test_polars_writes_and_reads(engine: sa.Engine, tmp_path: Path) -> None:
    import polars as pl  # type: ignore[import-not-found,unused-ignore]

    frame = pl.DataFrame({"id": [1, 2], "name": ["a", None]})
    assert frame.write_database("frames", engine, engine="sqlalchemy") == 2
    assert frame.write_database("frames", engine, engine="sqlalchemy", if_table_exists="append") == 2
    assert pl.read_database("SELECT DISTINCT id, name FROM frames ORDER BY 1", engine).equals(frame)
    connection = dbapi.connect(f"{tmp_path}/shop.db")
    assert pl.read_database("SELECT count(*) AS n FROM frames", connection).rows() == [(4,)]
    connection.close()


FIRST = """
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

metadata = sa.MetaData()
people = sa.Table(
    "people", metadata, sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20), nullable=False, index=True), sa.Column("n", sa.Integer, sa.Identity()),
    sa.Column("mood", sa.Enum("sad", "glad", name="mood"), server_default="glad"),
    sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now()), sa.UniqueConstraint("name", "n"),
    sa.CheckConstraint("n > 0", name="positive"), comment="who comes")
visits = sa.Table(
    "visits", metadata, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("details", pg.JSONB),
    sa.Column("person", sa.ForeignKey("people.id", ondelete="CASCADE", name="visits_of")),
    sa.Column("tags", pg.ARRAY(sa.Text)))
"""
SECOND = (
    FIRST.replace("sa.String(20), nullable=False, index=True", "sa.String(50)").replace("who comes", "who came")
    .replace('"n", sa.Integer', '"n", sa.BigInteger').replace(', ondelete="CASCADE"', "")
    + 'people.append_column(sa.Column("paid", sa.Numeric(8, 2), server_default="1.5"))\n'
    + 'sa.Index("by_person", visits.c.person, postgresql_where=sa.text("person > 10"))\n'
)  # fmt: skip


@pytest.mark.slow
def test_alembic_generates_and_runs_migrations(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Config(str(tmp_path / "alembic.ini"), attributes={"configure_logger": False})
    config.set_main_option("script_location", str(tmp_path / "migrations"))
    config.set_main_option("sqlalchemy.url", f"ontolake:///{tmp_path}/shop.db")
    command.init(config, str(tmp_path / "migrations"))
    environment = tmp_path / "migrations/env.py"
    imported = "from shop_models import metadata as target_metadata"
    text = environment.read_text().replace("target_metadata = None", imported)
    environment.write_text(re.sub(r"^if config.config_file_name.*\n.*\n", "", text, flags=re.MULTILINE))

    def migrate(models: str, message: str) -> str:
        (tmp_path / "shop_models.py").write_text(models)
        sys.modules.pop("shop_models", None)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        command.revision(config, message, autogenerate=True)
        command.upgrade(config, "head")
        command.check(config)  # raises if what was generated was not all
        return next((tmp_path / "migrations/versions").glob(f"*_{message}.py")).read_text()

    migrate(FIRST, "first")
    assert sa.inspect(engine).get_table_names() == ["alembic_version", "people", "visits"]
    changes = migrate(SECOND, "second")
    assert set(re.findall(r"op\.(\w+)", changes.partition("def downgrade")[0])) == {
        "add_column", "alter_column", "create_foreign_key", "create_index", "create_table_comment", "drop_constraint",
        "drop_index", "f"}
    assert sa.inspect(engine).get_table_comment("people") == {"text": "who came"}
    command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]
