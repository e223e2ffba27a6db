"""Words of CREATE beside the definition itself: which of them mean nothing here, and which are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from ontolake.sql.errors import DefinitionError, UnsupportedError
from ontolake.sql.syntax.dialect import DIALECT

_STORAGE = re.compile(r"fillfactor|(log_)?autovacuum_\w+|parallel_workers|toast_tuple_target|vacuum_\w+|toast\.\w+"
                      r"|security_barrier|security_invoker|deduplicate_items|buffering|fastupdate|pages_per_range")
"""Parameters of PostgreSQL's own storage and planner."""


def is_idle(node: exp.Expr) -> bool:
    """Whether a property is a parameter of PostgreSQL's storage, which changes no answer."""
    return type(node) is exp.Property and _STORAGE.fullmatch(node.this.name.lower()) is not None


def refuse_properties(kind: str, properties: Sequence[exp.Expr]) -> None:
    """Raise `SqlError` if CREATE has a property that would change something."""
    for each in properties:
        if is_idle(each):
            continue
        if isinstance(each, exp.OnCommitProperty):
            raise DefinitionError("ON COMMIT is for temporary tables", sqlstate="42P16", hint="CREATE TEMP TABLE")
        raise UnsupportedError(f"{each.sql(DIALECT)} is not supported with CREATE {kind}", hint="leave it out")
