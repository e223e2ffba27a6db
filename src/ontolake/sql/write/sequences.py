"""Numbers of sequences: nextval, currval, lastval and setval, and the defaults of columns that count.

As in PostgreSQL a number is not given twice and a transaction that is rolled back leaves a gap. What a transaction has
taken is kept in the keyspace when it commits; until then, and behind a rollback, the process remembers it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ontolake import faults, urls
from ontolake.errors import Corruption
from ontolake.sql.catalog.objects import SequenceMeta
from ontolake.sql.errors import DataError, SqlError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.executor.names import output_name
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.rows import LIVE
from ontolake.sql.plan import execution
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import NotConstant, constant
from ontolake.sql.write.pending import Position

if TYPE_CHECKING:
    from ontolake.sql.catalog.records import SqlCatalog
    from ontolake.sql.transactions import SqlSession, SqlTransaction

FUNCTIONS = ("nextval", "currval", "setval", "lastval")


_lock = threading.Lock()
_given: dict[tuple[Any, ...], Position] = {}
"""How far sequences have come in this process, whether a transaction has committed it or not."""


def state_key(sequence: int) -> bytes:
    """The key of where a sequence stands."""
    return keys.meta_key(keys.SEQUENCE_STATE, sequence)


def stored(session: SqlSession, meta: SequenceMeta, at: int | None = None) -> Position:
    """Where a sequence stands in the keyspace."""
    value = session.keyspace.get_many([state_key(meta.object_id)], at).get(state_key(meta.object_id))
    return Position(meta.start, False) if value is None else _read(value)


def _read(value: bytes) -> Position:
    if not value.startswith(LIVE) or len(value) != len(LIVE) + 9:
        raise Corruption(f"the state of a sequence cannot be read: {value.hex()}")
    body = value[len(LIVE) :]
    return Position(int.from_bytes(body[:8], "big", signed=True), bool(body[8]))


def _further(meta: SequenceMeta, one: Position, other: Position) -> Position:
    """Of two positions the one that comes later."""
    first, second = ((each.last, each.called) for each in (one, other))
    if meta.increment < 0:
        first, second = (-first[0], first[1]), (-second[0], second[1])
    return one if first >= second else other


class Numbers:
    """Gives numbers of sequences to the statements of a transaction."""

    def __init__(
        self, session: SqlSession, transaction: SqlTransaction, database: str | None = None, schema: str = "public"
    ) -> None:
        self._session, self._transaction = session, transaction
        self._database, self._schema = database, schema

    @property
    def moment(self) -> int:
        """When the transaction began, in microseconds since 1970."""
        return self._transaction.moment

    @property
    def _catalog(self) -> SqlCatalog:
        return self._session.fresh_catalog(self._transaction)

    def find(self, name: str | int) -> SequenceMeta:
        """The sequence that a name or id means. Raises `UnknownNameError`."""
        catalog = self._catalog
        if isinstance(name, int):
            found = next((each for each in catalog.objects.values() if each.object_id == name), None)
            if not isinstance(found, SequenceMeta):
                raise UnknownNameError(f"there is no sequence {name}")
            return found
        parts = _parts(name)
        database = parts[-3] if len(parts) > 2 else self._database or catalog.default_database()
        try:
            return catalog.object(SequenceMeta, database, parts[-2] if len(parts) > 1 else self._schema, parts[-1])
        except UnknownNameError as error:
            known = [each.name for each in catalog.objects.values() if isinstance(each, SequenceMeta)]
            raise UnknownNameError(f"there is no sequence {name}", hint=nearest(name, known)) from error

    def take(self, name: str | int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The next numbers of a sequence. Raises `DataError` where it ends."""
        meta = self.find(name)
        with _lock:
            where = self._where(meta)
            position = self._position(meta, where)
            found = _next(meta, position, count)
            if count:
                after = Position(int(found[-1]), True)
                _given[where] = after
                pending = self._transaction.sequences.get(meta.object_id)
                self._transaction.sequences[meta.object_id] = after._replace(
                    is_set=meta.cycle or (pending is not None and pending.is_set))
        if count:
            self._transaction.touch(())
            memory = self._session.sequences
            memory.current[meta.object_id], memory.last = int(found[-1]), meta.object_id
        return found

    def set(self, name: str | int, value: int, called: bool = True) -> int:
        """Let a sequence go on behind a number, or with it. Raises `DataError` for one beyond its bounds."""
        meta = self.find(name)
        if not meta.least <= value <= meta.greatest:
            raise DataError(f"setval: {value} is out of bounds for the sequence {meta.name}", sqlstate="22003",
                            hint=f"from {meta.least} to {meta.greatest}")
        with _lock:
            _given[self._where(meta)] = Position(value, called)
            self._transaction.sequences[meta.object_id] = Position(value, called, True)
        self._transaction.touch(())
        if called:
            self._session.sequences.current[meta.object_id] = value
        return value

    def current(self, name: str | int) -> int:
        meta = self.find(name)
        if meta.object_id not in self._session.sequences.current:
            raise SqlError(f"currval of the sequence {meta.name} is not defined in this session yet", sqlstate="55000",
                           hint="call nextval first")
        return self._session.sequences.current[meta.object_id]

    def last(self) -> int:
        memory = self._session.sequences
        if memory.last is None:
            raise SqlError("lastval is not defined in this session yet", sqlstate="55000", hint="call nextval first")
        return memory.current[memory.last]

    def _where(self, meta: SequenceMeta) -> tuple[Any, ...]:
        session = self._session
        place: Any = id(session) if urls.parse(session.url).path == ":memory:" else session.url
        return place, session.line, meta.object_id, meta.created_at

    def _position(self, meta: SequenceMeta, where: tuple[Any, ...]) -> Position:
        pending, given = self._transaction.sequences.get(meta.object_id), _given.get(where)
        if pending is not None and pending.is_set:
            return pending if given is None or meta.cycle else _further(meta, pending, given)
        found = stored(self._session, meta)
        for each in (pending, given):
            if each is not None and not meta.cycle:
                found = _further(meta, found, each)
        return found


def _next(meta: SequenceMeta, position: Position, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    first = position.last + meta.increment if position.called else position.last
    last = first + (count - 1) * meta.increment
    if (count and not meta.least <= last <= meta.greatest) or not meta.least <= first <= meta.greatest:
        if not meta.cycle:
            bound = "maximum" if meta.increment > 0 else "minimum"
            value = meta.greatest if meta.increment > 0 else meta.least
            raise DataError(f"nextval: the sequence {meta.name} has reached its {bound}, {value}", sqlstate="2200H",
                            hint="use ALTER SEQUENCE to give it other bounds, or RESTART it")
        return np.fromiter(_cycled(meta, first, count), np.int64, count)
    return np.array([first + n * meta.increment for n in range(count)] if count < 8 else
                    np.arange(count, dtype=np.int64) * meta.increment + first, np.int64)


def _cycled(meta: SequenceMeta, number: int, count: int) -> Iterator[int]:
    for _ in range(count):
        if not meta.least <= number <= meta.greatest:
            number = meta.least if meta.increment > 0 else meta.greatest
        yield number
        number += meta.increment


def keep(session: SqlSession, transaction: SqlTransaction) -> None:
    """Write where the sequences stand that a transaction has used. Just before it commits."""
    if not transaction.sequences:
        return
    catalog = session.fresh_catalog(transaction)
    known = {each.object_id: each for each in catalog.objects.values() if isinstance(each, SequenceMeta)}
    for id, position in transaction.sequences.items():
        if (meta := known.get(id)) is not None:
            put(session, transaction, meta, position if position.is_set
                else _further(meta, stored(session, meta), position))
    transaction.sequences.clear()


def put(session: SqlSession, transaction: SqlTransaction, meta: SequenceMeta, position: Position) -> None:
    """Write where a sequence stands."""
    key = state_key(meta.object_id)
    value = LIVE + position.last.to_bytes(8, "big", signed=True) + bytes((position.called,))
    keyspace = session.keyspace
    there = keyspace.get_many([key]).get(key)
    if there == value:
        return
    if there is None:
        keyspace.revive(transaction.version, [key])
        keyspace.insert(transaction.version, [(key, value)])
    else:
        keyspace.put(transaction.version, [(key, value)])
    faults.reach("sql: sequence written")


def merge(session: SqlSession, transaction: SqlTransaction, theirs: dict[int, Position]) -> None:
    """Let the sequences of a merged branch go on behind the higher number of both sides."""
    for each in session.fresh_catalog(transaction).objects.values():
        if isinstance(each, SequenceMeta) and each.object_id in theirs:
            put(session, transaction, each, _further(each, stored(session, each), theirs[each.object_id]))


# statements


def calls_in(tree: exp.Expr) -> list[exp.Anonymous]:
    """The calls of functions of sequences in a tree."""
    return [node for node in tree.find_all(exp.Anonymous) if str(node.this).lower() in FUNCTIONS]


def has_calls(sql: str) -> bool:
    """Whether a text may have such calls."""
    lower = sql.lower()
    return any(name in lower for name in FUNCTIONS)


def _parts(name: str) -> list[str]:
    try:
        table = exp.to_table(name, dialect="postgres")
    except Exception as error:
        raise SqlError(f"{name!r} is not a name", sqlstate="42602") from error
    return [part.this if part.args.get("quoted") else part.this.lower() for part in table.parts]


def argument(node: exp.Expr) -> str | int:
    """The sequence that a call names."""
    inner = node.this if isinstance(node, exp.Cast) else node
    try:
        found = constant(inner)
    except NotConstant:
        raise UnsupportedError(f"{node.sql('postgres')} is not supported as the name of a sequence",
                               hint="write the name as text") from None
    if not isinstance(found, str | int):
        raise SqlError("a sequence is named by text", sqlstate="42883")
    return found


def called(numbers: Numbers, call: exp.Anonymous, count: int) -> list[int]:
    """What a call gives for so many rows."""
    name, arguments = str(call.this).lower(), call.expressions
    if len(arguments) not in {"nextval": (1,), "currval": (1,), "lastval": (0,), "setval": (2, 3)}[name]:
        raise UnknownNameError(f"there is no function {name} with {len(arguments)} arguments", sqlstate="42883")
    if name == "nextval":
        found: list[int] = numbers.take(argument(arguments[0]), count).tolist()
        return found
    if name == "currval":
        return [numbers.current(argument(arguments[0]))] * count
    if name == "lastval":
        return [numbers.last()] * count
    try:
        value, flag = constant(arguments[1]), constant(arguments[2]) if len(arguments) > 2 else True
    except NotConstant:
        wanted = execution.run(exp.select(*(each.copy().as_(f"v{n}") for n, each in enumerate(arguments[1:]))), {})
        value, flag = (*wanted.to_pylist()[0].values(), True)[:2]
    if value is None or flag is None:
        return [None] * count  # type: ignore[list-item]
    return [numbers.set(argument(arguments[0]), int(value), bool(flag))] * count if count else []


def query(tree: exp.Expr, numbers: Numbers, run: Callable[[exp.Expr], Result]) -> Result:
    """The rows of a query that calls functions of sequences. `run` answers one without such calls.

    Raises `UnsupportedError` for a call elsewhere than in an output of the query that stands outermost.
    """
    tree = tree.copy()
    if not any(isinstance(node, exp.From) for node in tree.walk()):
        for node in tree.expressions if isinstance(tree, exp.Select) else ():
            if not isinstance(node, exp.Alias) and calls_in(node):
                node.replace(exp.alias_(node.copy(), output_name(node), quoted=True))
        for call in calls_in(tree):
            value = called(numbers, call, 1)[0]
            bare = exp.Null() if value is None else exp.Literal.number(abs(value))
            call.replace(exp.cast(exp.Paren(this=exp.Neg(this=bare)) if value is not None and value < 0 else bare,
                                  "BIGINT", dialect="postgres"))  # fmt: skip
        return run(tree)
    outputs = tree.expressions if isinstance(tree, exp.Select) else []
    filled: dict[int, exp.Expr] = {n: node.copy() for n, node in enumerate(outputs) if calls_in(node)}
    if len(calls_in(tree)) != sum(len(calls_in(node)) for node in filled.values()) or tree.args.get("distinct"):
        raise UnsupportedError("functions of sequences are supported among the outputs of a query, not elsewhere in it",
                               hint="compute the rows first, and number them in a query around it")
    names: dict[int, str] = {}
    for n, node in filled.items():
        inner = node.unalias()
        if next(inner.find_all(exp.Column), None) is not None:
            raise UnsupportedError("a function of a sequence is not supported beside columns in one expression",
                                   hint="number the rows in a query of their own")
        names[n] = node.alias_or_name or str(calls_in(node)[0].this).lower()
        outputs[n].replace(exp.alias_(exp.Null(), names[n], quoted=True))
    found = run(tree).typed()
    columns = list(found.columns)
    for n, node in filled.items():
        inner = node.unalias()
        calls = calls_in(inner)
        parts = {f"n{k}": pa.array(called(numbers, call, found.num_rows), pa.int64()) for k, call in enumerate(calls)}
        if len(calls) == 1 and inner is calls[0]:
            columns[n] = parts["n0"]
            continue
        for k, call in enumerate(calls):
            call.replace(exp.column(f"n{k}"))
        columns[n] = execution.run(exp.select(inner.as_("v")).from_("t0"), {"t0": pa.table(parts)}).column(0)
    table = pa.Table.from_arrays(columns, names=found.column_names)
    return Result(f"SELECT {table.num_rows}", table.num_rows, table=table)
