"""Which keys answer a set of conditions: single keys, ranges of the primary key, or ranges of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from ontolake.sql.catalog.records import PUBLIC, ColumnMeta, IndexMeta, Table
from ontolake.sql.keyspace import keys, vectors
from ontolake.sql.keyspace.versions import Keyspace, KeySpan
from ontolake.sql.plan.conditions import ABOVE, BELOW, EQUAL, HIGH, LOW, ColumnCondition, exact
from ontolake.sql.plan.matching import implies
from ontolake.sql.syntax.statements import Parameters
from ontolake.sql.types import Stored

MAX_SPANS = 256
INDEX_LIMIT = 20_000
"""An index range of more rows than this is not followed row by row."""
LOOKUP = 4
"""What it costs to follow an index entry to its row, against reading a row in passing."""


class AccessPath(NamedTuple):
    """How a table is read. Either `keys` or `spans`; `by` names the index that the spans are those of."""

    kind: str
    table: Table
    keys: Sequence[bytes] | None
    spans: Sequence[KeySpan]
    answered: frozenset[int]
    """The parts of the WHERE that every row found this way satisfies."""
    by: IndexMeta | None = None

    def describe(self) -> str:
        """The access for EXPLAIN."""
        name = self.table.full_name
        if self.keys is not None:
            return f"{self.kind} on {name}: {len(self.keys)} key{'' if len(self.keys) == 1 else 's'}"
        ranges = f"{len(self.spans)} range{'' if len(self.spans) == 1 else 's'}"
        if self.by is not None:
            return f"{self.kind} on {name} using {self.by.name}: {ranges}"
        return f"{self.kind} on {name}" + ("" if self.kind == "full scan" else f": {ranges}")


class _Limits(NamedTuple):
    """What conditions say of one column: one of `equal`, or a range."""

    equal: tuple[int, list[Stored]] | None
    low: tuple[int, Stored, bool] | None
    high: tuple[int, Stored, bool] | None


def choose(
    table: Table, conditions: Sequence[ColumnCondition], parameters: Parameters, needed: Iterable[ColumnMeta],
    keyspace: Keyspace, facts: frozenset[str] = frozenset(),
) -> AccessPath:  # fmt: skip
    """The cheapest way to the rows that conditions leave, by counting keys as far as it matters."""
    limits = _limits(conditions, parameters)
    answered = _Answered(conditions)
    primary = _primary(table, limits, answered)
    if primary.keys is not None:
        return primary
    needed_ids = {column.column_id for column in needed}
    best, cost = primary, -1
    for index in table.indexes:
        if index.state != PUBLIC or (index.predicate and not implies(facts, index.predicate)):
            continue
        found = _by_index(table, index, limits, answered)
        if found is None:
            continue
        known = {id for id in (*index.column_ids, *table.meta.primary_key_column_ids)
                 if table.by_id[id].type.is_exact_in_keys} | {*index.include_ids}  # fmt: skip
        only = needed_ids <= known
        if not found.spans:
            return found
        room = INDEX_LIMIT if not only else 1 << 40
        if cost >= 0:
            room = min(room, cost + 1)
        entries = sum(keyspace.estimate(span, room) for span in found.spans)
        if entries >= room:
            continue
        weight = entries if only else entries * LOOKUP
        if cost < 0:
            scanned = sum(keyspace.estimate(span, weight + 2) for span in primary.spans)
            if scanned <= weight:
                continue
        best, cost = found._replace(kind="index-only range" if only else "index range"), weight
    return best


def _limits(conditions: Sequence[ColumnCondition], parameters: Parameters) -> dict[int, _Limits]:
    """What conditions say of each column, by its id."""
    limits: dict[int, _Limits] = {}
    for number, condition in enumerate(conditions):
        column = condition.column
        raw = condition.values(parameters)
        stored = [exact(column, each) for each in raw if each is not None]
        if None in stored or (condition.operator != EQUAL and not stored):
            continue
        found = limits.get(column.column_id, _Limits(None, None, None))
        if condition.operator == EQUAL and found.equal is None:
            found = found._replace(equal=(number, list(dict.fromkeys(stored))))
        elif condition.operator in (LOW, ABOVE) and found.low is None:
            found = found._replace(low=(number, stored[0], condition.operator == LOW))
        elif condition.operator in (HIGH, BELOW) and found.high is None:
            found = found._replace(high=(number, stored[0], condition.operator == HIGH))
        else:
            continue
        limits[column.column_id] = found
    return limits


class _Answered:
    """Tells which parts of the WHERE are answered by a set of conditions."""

    def __init__(self, conditions: Sequence[ColumnCondition]) -> None:
        self._parts: dict[int, set[int]] = {}
        for number, condition in enumerate(conditions):
            self._parts.setdefault(condition.conjunct, set()).add(number)

    def __call__(self, numbers: set[int]) -> frozenset[int]:
        return frozenset(part for part, members in self._parts.items() if members <= numbers)


def _primary(table: Table, limits: dict[int, _Limits], answered: _Answered) -> AccessPath:
    first = table.primary_key[0]
    alone = limits.get(first.column_id)
    if len(table.primary_key) == 1 and alone is not None and alone.equal is not None:
        number, values = alone.equal
        if len(values) > 64:
            column = vectors.stored_array(first.type, values)
            found = vectors.encode_keys(table.prefix, table.key_types, [column]).to_list()
        else:
            found = [table.prefix + keys.element(first.type.kind, value) for value in values]
        found = list(dict.fromkeys(found))  # values that differ, such as 30 days and a month, may share a key
        return AccessPath("point get" if len(found) == 1 else "multi-get", table, found, (), answered({number}))
    spans, full, numbers = _spans(table.prefix, table.primary_key, (False,) * len(table.primary_key), limits)
    if full:
        found = [span.start for span in spans]
        return AccessPath("point get" if len(found) == 1 else "multi-get", table, found, (), answered(numbers))
    if not numbers:
        return AccessPath("full scan", table, None, [table.span], frozenset())
    return AccessPath("primary key range", table, None, spans, answered(numbers))


def _by_index(table: Table, index: IndexMeta, limits: dict[int, _Limits], answered: _Answered) -> AccessPath | None:
    columns = [table.by_id[id] for id in index.column_ids]
    columns = [table.expressions[column.name][0] if column.column_id < 0 else column for column in columns]
    spans, _, numbers = _spans(keys.entry_prefix(table.id, index.index_id), columns, index.desc, limits)
    if not numbers and not index.predicate:
        return None
    return AccessPath("index range", table, None, spans, answered(numbers) if numbers else frozenset(), index)


def _spans(
    prefix: bytes, columns: Sequence[ColumnMeta], desc: Sequence[bool], limits: dict[int, _Limits]
) -> tuple[list[KeySpan], bool, set[int]]:
    """The ranges of keys that limits leave, whether they name whole tuples, and which conditions that used up."""
    choices: list[list[bytes]] = []
    numbers: set[int] = set()
    count = 1
    for n, column in enumerate(columns):
        found = limits.get(column.column_id)
        if found is None:
            break
        if found.equal is not None and count * len(found.equal[1]) <= MAX_SPANS:
            count *= len(found.equal[1])
            choices.append(list(dict.fromkeys(keys.element(column.type.kind, each, desc[n])
                                              for each in found.equal[1])))  # fmt: skip
            numbers.add(found.equal[0])
            continue
        if found.low is None and found.high is None:
            break
        numbers |= {each[0] for each in (found.low, found.high) if each is not None}
        starts = [prefix + b"".join(parts) for parts in product(*choices)]
        ranged = [_range(start, column.type.kind, desc[n], found) for start in starts]
        return sorted(span for span in ranged if span.start < span.end), False, numbers
    whole = len(choices) == len(columns)
    starts = [prefix + b"".join(parts) for parts in product(*choices)]
    return sorted(KeySpan(start, keys.after(start)) for start in starts), whole, numbers


def _range(prefix: bytes, kind: int, desc: bool, found: _Limits) -> KeySpan:
    """The range of one column. NULLs, which satisfy no comparison, lie behind all values, or before them with DESC."""
    low, high = (found.high, found.low) if desc else (found.low, found.high)
    start, end = prefix, keys.after(prefix)
    null = prefix + keys.element(kind, None, desc)
    if low is not None:
        edge = prefix + keys.element(kind, low[1], desc)
        start = edge if low[2] else keys.after(edge)
    elif desc:
        start = keys.after(null)
    if high is not None:
        edge = prefix + keys.element(kind, high[1], desc)
        end = keys.after(edge) if high[2] else edge
    elif not desc:
        end = null
    return KeySpan(start, end)
