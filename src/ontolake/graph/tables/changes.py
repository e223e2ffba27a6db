"""What is to become of the rows of a table in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ontolake.graph.tables.appends import StagedAppend

if TYPE_CHECKING:
    import pyarrow as pa


class TableChange(NamedTuple):
    """What is to become of a table: rows to put (by key, unless all are `fresh`), keys to take away."""

    puts: pa.Table | None = None
    deletes: pa.Table | None = None
    fresh: bool = False
    replace: bool = False
    """Whether rows that are not among `puts` go."""
    staged: StagedAppend | None = None
    """`puts`, written already."""
    known: pa.Table | None = None
    """Keys of rows that the table has, with their ids as `_rowid`: of all that are put or taken away."""

    @property
    def steps(self) -> int:
        return int(self.puts is not None) + int(self.deletes is not None)
