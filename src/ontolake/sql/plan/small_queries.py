"""Queries that touch a few rows, answered in Python: rows by key, rows that they lead to by key, simple expressions.

A statement for an executor of queries costs a millisecond before the first row is read; these need none. A query that
is more than that, or finds more rows than a few, is left to the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.rows import decode_row
from ontolake.sql.plan.conditions import inner_parts, table_and_name
from ontolake.sql.plan.scans import row_keys
from ontolake.sql.plan.small_values import Compiled, Env, Unable, compiled
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, name_of
from ontolake.sql.types import BIGINT, BOOLEAN, Stored, Type

if TYPE_CHECKING:
    from ontolake.sql.plan.access import AccessPath
    from ontolake.sql.plan.queries import TableSource
    from ontolake.sql.transactions import SqlSession

FEW = 48
"""Up to so many rows of a table are worked on here."""
FEW_SCANNED = 128
"""Up to so many rows of a range are worked on here."""
_PLAIN = {"expressions", "from_", "where", "joins", "kind", "operation_modifiers"}


class _Join(NamedTuple):
    """The conjunct `key = other column`, where `key` is the whole primary key of a source."""

    conjunct: int
    source: int
    other: int
    column: ColumnMeta


class SmallQuery:
    """A query of tables that are joined by their keys."""

    def __init__(self, tree: exp.Select, sources: Sequence[TableSource]) -> None:
        """Raises `Unable`."""
        self._sources = sources
        self._by_alias = {source.alias: number for number, source in enumerate(sources)}
        if len(self._by_alias) != len(sources):
            raise Unable
        self._joins: list[_Join] = []
        self._conditions: list[Compiled | None] = []
        for number, part in enumerate(inner_parts(tree, joined=True)):
            self._joins += self._joins_of(number, part)
            try:
                found = compiled(part, self._resolve)
                self._conditions.append(found if found.type is not None and found.type == BOOLEAN else None)
            except Unable:
                self._conditions.append(None)
        self._names: list[str] = []
        self._outputs: list[tuple[Type, Any]] = []
        for each in tree.expressions:
            self._add_output(each)
        self.types = [type for type, _ in self._outputs]

    def _add_output(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            if isinstance(node, exp.Star) and any(node.args.get(name) for name in node.args):
                raise Unable
            wanted = name_of(node.args.get("table")) if isinstance(node, exp.Column) else ""
            for number, source in enumerate(self._sources):
                if wanted in ("", source.alias):
                    for column in source.table.visible:
                        self._names.append(column.name)
                        self._outputs.append(_column_of(number, column))
            return
        inner = node.this if isinstance(node, exp.Alias) else node
        found = compiled(inner, self._resolve)
        if found.type is None:
            raise Unable
        self._names.append(_output_name(node))
        self._outputs.append((found.type, found.run))

    def _resolve(self, node: exp.Column) -> tuple[int, int, Type] | None:
        found = self._find(node)
        return None if found is None else (found[0], found[1].column_id - 1, found[1].type)

    def _find(self, node: exp.Expr) -> tuple[int, ColumnMeta] | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        qualifier, name = table_and_name(node)
        having = [number for number, source in enumerate(self._sources)
                  if qualifier in ("", source.alias) and name in source.table.by_name]  # fmt: skip
        return (having[0], self._sources[having[0]].table.by_name[name]) if len(having) == 1 else None

    def _joins_of(self, number: int, part: exp.Expr) -> list[_Join]:
        if not isinstance(part, exp.EQ):
            return []
        left, right = self._find(part.this), self._find(part.expression)
        if left is None or right is None or left[0] == right[0] or left[1].type != right[1].type:
            return []
        return [_Join(number, source, other, column)
                for (source, key), (other, column) in ((left, right), (right, left))
                if self._sources[source].table.primary_key == [key]]

    # running

    def run(self, session: SqlSession, chosen: Sequence[AccessPath], parameters: Parameters) -> Result | None:
        """The answer, if the query finds few rows; None otherwise."""
        first = next((number for number, way in enumerate(chosen)
                      if way.keys is not None and way.by is None and len(way.keys) <= FEW), None)
        if first is None:
            first = next((number for number, way in enumerate(chosen)
                          if way.keys is None and self._is_answerable(way)
                          and _is_short(session, way, self._sources[number].at)), None)
        if first is None:
            return None
        try:
            return self._run(session, first, chosen[first], parameters)
        except Unable:
            return None

    def _is_answerable(self, way: AccessPath) -> bool:
        """Whether all conditions can be told here, so that it is worth reading rows."""
        joined = {join.conjunct for join in self._joins}
        return all(condition is not None or number in way.answered or number in joined
                   for number, condition in enumerate(self._conditions))  # fmt: skip

    def _run(self, session: SqlSession, first: int, way: AccessPath, parameters: Parameters) -> Result:
        self._check(parameters)
        done = set(way.answered)
        if way.keys is None:
            found = self._scanned(session, first, way)
        else:
            found = list(self._rows(session, first, way.keys).values())
        blank: list[Sequence[Stored]] = [()] * len(self._sources)
        envs = [[*blank[:first], row, *blank[first + 1 :]] for row in found]
        bound = {first}
        while len(bound) < len(self._sources):
            join = next((each for each in self._joins if each.source not in bound and each.other in bound), None)
            if join is None:
                raise Unable
            envs = self._joined(session, envs, join)
            bound.add(join.source)
            done.add(join.conjunct)
        for number, condition in enumerate(self._conditions):
            if number not in done:
                if condition is None:
                    raise Unable
                envs = [env for env in envs if condition.run(env, parameters) is True]
        rows = [[run(env, parameters) for _, run in self._outputs] for env in envs]
        return Result(f"SELECT {len(rows)}", len(rows), columns=self._names, stored=rows, types=self.types)

    def _check(self, parameters: Parameters) -> None:
        """Raise `Unable` for parameters of other types than they are compared with, whether there are rows or not."""
        nothing = [(None,) * len(source.table.kinds) for source in self._sources]
        for condition in self._conditions:
            if condition is not None:
                condition.run(nothing, parameters)
        for _, run in self._outputs:
            run(nothing, parameters)

    def _scanned(self, session: SqlSession, number: int, way: AccessPath) -> list[Sequence[Stored]]:
        """The rows of a short range of keys or index entries."""
        source, keyspace = self._sources[number], session.keyspace
        table = source.table
        stored: list[bytes] = []
        for span in way.spans:
            for batch in keyspace.scan(span, source.at, keys=way.by is not None):
                stored += batch.values.to_list() if way.by is None else \
                    keyspace.get_many(row_keys(way, batch), source.at).values()
        return [decode_row(table.kinds, value, table.absent) for value in stored]

    def _rows(self, session: SqlSession, number: int, wanted: Sequence[bytes]) -> dict[bytes, Sequence[Stored]]:
        source = self._sources[number]
        table = source.table
        if len(wanted) == 1 and source.at is None:
            one = session.keyspace.get(wanted[0])
            stored = {} if one is None else {wanted[0]: one}
        else:
            stored = session.keyspace.get_many(wanted, source.at)
        return {key: decode_row(table.kinds, value, table.absent) for key, value in stored.items()}

    def _joined(self, session: SqlSession, envs: list[Any], join: _Join) -> list[Any]:
        """Rows with those of another table that they lead to."""
        table = self._sources[join.source].table
        kind, place = table.primary_key[0].type.kind, join.column.column_id - 1
        leads = [None if (value := env[join.other][place]) is None else table.prefix + keys.element(kind, value)
                 for env in envs]  # fmt: skip
        wanted = list(dict.fromkeys(key for key in leads if key is not None))
        if not wanted:
            return []
        found = self._rows(session, join.source, wanted)
        return [[*env[: join.source], found[key], *env[join.source + 1 :]]
                for env, key in zip(envs, leads, strict=True) if key is not None and key in found]


def _is_short(session: SqlSession, way: AccessPath, at: int | None) -> bool:
    """Whether an access finds few rows, now or at a version."""
    left, keyspace = FEW_SCANNED + 1, session.keyspace
    for span in way.spans:
        left -= keyspace.estimate(span, left) if at is None else keyspace.count(span, left, at)
        if left <= 0:
            return False
    return True


def _column_of(source: int, column: ColumnMeta) -> tuple[Type, Any]:
    place = column.column_id - 1

    def run(env: Env, parameters: Parameters) -> Stored:
        return env[source][place]

    return column.type, run


def _output_name(node: exp.Expr) -> str:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Alias):
        return name_of(node.args["alias"])
    if isinstance(node, exp.Column):
        return table_and_name(node)[1]
    return str(node.this) if isinstance(node, exp.Anonymous) else "?column?"


def small_query(tree: exp.Expr, sources: Sequence[TableSource]) -> SmallQuery | None:
    """A query as one of these, if it is."""
    if not isinstance(tree, exp.Select) or any(given for name, given in tree.args.items() if name not in _PLAIN):
        return None
    joins = tree.args.get("joins") or ()
    if any(join.side or join.kind not in ("", "INNER", "CROSS") or join.args.get("using") or join.args.get("method")
           for join in joins):  # fmt: skip
        return None
    try:
        return SmallQuery(tree, sources)
    except Unable:
        return None


class RowCount(NamedTuple):
    """`SELECT count(*)` of one table, answered by counting keys."""

    name: str

    def run(self, session: SqlSession, source: TableSource, way: AccessPath) -> Result:
        """The number of rows that an access finds; it answers all conditions."""
        keyspace = session.keyspace
        if way.keys is not None:
            found = len(keyspace.get_many(way.keys, source.at))
        else:
            found = sum(keyspace.count(span, 1 << 62, source.at) for span in way.spans)
        return Result("SELECT 1", 1, columns=[self.name], stored=[[found]], types=[BIGINT])


def row_count(tree: exp.Expr) -> RowCount | None:
    """A query as a count of rows, if it is one."""
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 \
            or any(given for name, given in tree.args.items() if name not in _PLAIN - {"joins"}):  # fmt: skip
        return None
    node = tree.expressions[0]
    inner = node.this if isinstance(node, exp.Alias) else node
    if type(inner) is not exp.Anonymous or inner.this != "count" or inner.expressions != [exp.Star()] \
            or any(given for name, given in inner.args.items() if name not in ("this", "expressions")):  # fmt: skip
        return None
    return RowCount(name_of(node.args["alias"]) if isinstance(node, exp.Alias) else "count")
