"""Runs SQLAlchemy's own dialect suite with `ontolake://`; see `test_sqlalchemy_suite.py`, which starts it."""

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403


@pytest.fixture(scope="session", autouse=True)
def _schemas() -> None:
    """Create the schemas that the suite expects."""
    from sqlalchemy.testing import config

    with config.db.begin() as connection:
        for schema in ("test_schema", "test_schema_2"):
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
