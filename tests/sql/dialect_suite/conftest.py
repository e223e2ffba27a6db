"""Runs SQLAlchemy's own dialect suite with `ontolake://`, or over the wire; see `test_sqlalchemy_suite.py`."""

from typing import Any

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.dialects.postgresql import provision as _postgresql  # noqa: E402, F401
from sqlalchemy.testing import provision  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403

for routine in (provision.temp_table_keyword_args, provision.set_default_schema_on_connection, provision.upsert,
                provision.drop_all_schema_objects_post_tables):  # fmt: skip
    routine.for_db("ontolake")(routine.fns["postgresql"])


@provision.drop_all_schema_objects_pre_tables.for_db("postgresql")
def _prepared_transactions(cfg: Any, eng: Any) -> None:
    """There are none to roll back."""


@provision.prepare_for_drop_tables.for_db("postgresql")
def _idle_transactions(config: Any, connection: Any) -> None:
    """None holds a lock on a table."""


@provision.post_configure_engine.for_db("postgresql")
def _extensions(url: Any, engine: Any, follower_ident: Any) -> None:
    """There are none."""


@pytest.fixture(scope="session", autouse=True)
def _schemas() -> None:
    """Create the schemas that the suite expects."""
    from sqlalchemy.testing import config

    with config.db.begin() as connection:
        for schema in ("test_schema", "test_schema_2"):
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
