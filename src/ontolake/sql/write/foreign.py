"""Changes of rows of tables that something else keeps. They wait until the transaction ends."""

from __future__ import annotations

from ontolake.sql.errors import UniqueError, UnsupportedError
from ontolake.sql.mounts import MountedSchemas
from ontolake.sql.plan.foreign import ForeignTable, keys_of
from ontolake.sql.write.row_writer import Writer
from ontolake.sql.write.rows import Rows


class ForeignWriter:
    """Gives changes of rows to whoever keeps their table: those of this database to `inner`."""

    def __init__(self, inner: Writer, mounted: MountedSchemas) -> None:
        self._inner, self._mounted = inner, mounted

    def insert(self, new: Rows) -> None:
        """Add rows. Raises `UniqueError` for a key that is there."""
        table = new.table
        if not isinstance(table, ForeignTable):
            self._inner.insert(new)
            return
        self._check(table)
        rows = new.arrow()
        keys = keys_of(rows, table.rows.keys)
        taken = table.there(rows) if keys else []
        twice = [place for place, key in enumerate(keys) if key in set(keys[:place])] if len(set(keys)) < len(keys) \
            else []
        for place in [*taken, *twice]:
            named = ", ".join(table.rows.keys)
            shown = ", ".join(map(str, keys[place]))
            raise UniqueError(f"{table.full_name} has a row with ({named}) = ({shown}) already",
                              table=table.full_name, constraint=table.key_name)
        if keys:
            table.change((), rows)

    def update(self, old: Rows, new: Rows) -> None:
        """Replace rows. Raises `UnsupportedError` for another key."""
        table = new.table
        if not isinstance(table, ForeignTable):
            self._inner.update(old, new)
            return
        self._check(table)
        rows = new.arrow()
        keys = keys_of(old.arrow(), table.rows.keys)
        if keys != keys_of(rows, table.rows.keys):
            raise UnsupportedError(f"the key of rows of {table.full_name} cannot be changed",
                                   hint="DELETE the row, and INSERT another")
        if keys:
            table.change(keys, rows)

    def delete(self, old: Rows) -> None:
        """Take rows away."""
        table = old.table
        if not isinstance(table, ForeignTable):
            self._inner.delete(old)
            return
        self._check(table)
        if keys := keys_of(old.arrow(), table.rows.keys):
            table.change(keys, None)

    def _check(self, table: ForeignTable) -> None:
        if not table.rows.keys:
            raise UnsupportedError(f"{table.full_name} has no key that rows could be changed by")
        self._mounted.check_writable(table)
