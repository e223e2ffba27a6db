"""Plans as SQL statements: sources, joins, bounds in time, filters, aggregates, order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, assert_never

from ontolake.model import scalars
from ontolake.model.columns import Column
from ontolake.model.filters import Compare, Junction, Measure, Shape, ValueRef, balanced
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.query.compiler.conditions import Encode, Operand, comparand, condition, number, operand
from ontolake.ontology.query.compiler.functions import given_list
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.query.needs import refs_of
from ontolake.ontology.query.plan import Plan, Values

FEW = 100
"""Up to so many conditions stand side by side; SQLite allows for a thousand."""

Slot = tuple[str, int, Encode | None, int]
"""Part of `Values`, position in it (-1 for all of it), encoder, and for a list how many values there are; 0 for one."""


class Statement(NamedTuple):
    """SQL, and the values that it takes."""

    sql: str
    slots: tuple[Slot, ...]
    marked: bool = False
    """Whether the last column says that a row is a deletion, which then is no answer."""

    def parameters(self, values: Values) -> tuple[Any, ...]:
        """What to bind. Raises `QueryError` for values that do not fit their fields."""
        found = []
        for part, position, encode, size in self.slots:
            value = getattr(values, part)
            if size and encode is not None:
                found.append(given_list(map(encode, value[position : position + size])))
                continue
            if position >= 0:
                value = value[position]
            found.append(value if encode is None else encode(value))
        return tuple(found)


class Sources(Protocol):
    """What knows where rows of a type are."""

    def source(self, info: TypeInfo) -> str:
        """SQL of something with the key columns, `commit_id`, `rowid` and the fields of a type as columns."""
        ...

    def key(self, alias: str, column: str) -> str:
        """SQL of a key column in the form in which it is indexed."""
        ...

    def key_column(self, column: str) -> str:
        """The name of that form of a key column."""
        ...

    def latest(self, info: TypeInfo, alias: str, as_of: str | None) -> str:
        """A condition on a row of `source`: it is the latest of its key, up to a bound."""
        ...

    def scan(self, info: TypeInfo, alias: str, as_of: str | None, *, filtered: bool = False) -> tuple[str, str]:
        """What a statement that looks at all rows of a type reads from, and the same condition.

        `filtered` says that it asks more of a row, which few rows may pass.
        """
        ...

    def latest_of(self, info: TypeInfo, alias: str, key: str, as_of: str | None) -> str:
        """The same for an entity whose key is given as SQL."""
        ...

    def visible(self, info: TypeInfo, alias: str) -> str | None:
        """A condition on a row of `source`: it is part of the history that is read. None if all rows are."""
        ...

    def deleted(self, info: TypeInfo, alias: str) -> str | None:
        """Whether a row of `source` is a deletion, as SQL; None if none is."""
        ...


def compile_plan(plan: Plan, sources: Sources) -> Statement:
    """The statement that answers a plan. Raises `QueryError` for what cannot be asked."""
    return _Compiler(plan, sources).statement()


class _Row(NamedTuple):
    """One row in the FROM clause."""

    cls: Any
    info: TypeInfo
    alias: str


class _Compiler:
    def __init__(self, plan: Plan, sources: Sources) -> None:
        self._plan = plan
        self._sources = sources
        self._slots: list[Slot] = []
        self._part = "where"
        self._used: dict[str, int] = {}
        self._rows = [_Row(cls, type_info(cls), f"t{n}") for n, cls in enumerate(plan.types)]
        self._ends: dict[str, _Row] = {}
        self._known_key: str | None = None
        self._as_of = self._bound("as_of") if plan.as_of else None
        self._since = self._bound("since") if plan.since else None

    def _bound(self, part: str) -> str:
        self._slots.append((part, -1, None, 0))
        return f"?{len(self._slots)}"

    # what conditions ask for
    def slot(self, encode: Encode | None) -> str:
        position = self._used.get(self._part, 0)
        self._used[self._part] = position + 1
        self._slots.append((self._part, position, encode, 0))
        return f"?{len(self._slots)}"

    def many(self, size: int, encode: Encode) -> str:
        position = self._used.get(self._part, 0)
        self._used[self._part] = position + size
        self._slots.append((self._part, position, encode, size))
        return f"?{len(self._slots)}"

    def again(self, encode: Encode) -> str:
        part, position, *_ = self._slots[-1]
        self._slots.append((part, position, encode, 0))
        return f"?{len(self._slots)}"

    def locate(self, ref: ValueRef) -> tuple[str, Column]:
        row = self._row_of(ref)
        column = row.info.by_name.get(ref.name)
        if column is None:
            raise QueryError(f"{row.info.name} has no field {ref.name!r}",
                             hint=f"it has {', '.join(row.info.by_name)}")
        return row.alias, column

    def exact(self, ref: ValueRef) -> str | None:
        row = self._row_of(ref)
        column = row.info.by_name.get(ref.name)
        if column is None or column not in row.info.keys or column.sqlite_type != "INTEGER":
            return None
        indexed = self._sources.key_column(column.column)
        return self._sources.key(row.alias, column.column) if indexed != column.column else None

    def _row_of(self, ref: ValueRef) -> _Row:
        places = range(len(self._rows) - 1, -1, -1) if ref.at is None else (ref.at,)
        for position in places:
            row = self._rows[position]
            if row.cls is ref.owner:
                return row if ref.side is None else self._end(position, ref.side)
        asked = getattr(ref.owner, "__name__", str(ref.owner))
        raise QueryError(f"the query reads {', '.join(row.info.name for row in self._rows)}, not {asked}",
                         hint="left(R).field and right(R).field are fields of a relation's ends")

    def _end(self, position: int, side: str) -> _Row:
        """The row at one end of a relation: a neighbour on the path, or one that is joined for it."""
        relation = self._rows[position]
        if position > 0:
            forward = self._plan.hops[(position - 1) // 2].forward
            return self._rows[position - 1 if (side == "left") == forward else position + 1]
        found = self._ends.get(side)
        if found is None:
            cls = relation.info.left if side == "left" else relation.info.right
            found = self._ends[side] = _Row(cls, type_info(cls), side)
        return found

    def measure(self, measure: Measure) -> tuple[str, Encode | None]:
        """SQL of an aggregate, and how a value to compare with it is encoded."""
        match measure.op:
            case "count":
                return "count(*)" if measure.ref is None else f"count({operand(measure.ref, self).sql})", number
            case "count_where":
                assert measure.where is not None
                return f"count(CASE WHEN {condition(measure.where, self)} THEN 1 END)", number
            case "avg_len":
                assert measure.ref is not None
                return f"avg({_length(operand(measure.ref, self))})", number
            case "min" | "max":
                assert measure.ref is not None
                return self._extreme(measure.op, operand(measure.ref, self))
            case "sum" | "avg":
                assert measure.ref is not None
                return self._total(measure.op, operand(measure.ref, self))
            case _:
                assert_never(measure.op)

    @staticmethod
    def _extreme(op: str, value: Operand) -> tuple[str, Encode | None]:
        _refuse_containers(value.column, op)
        return f"{op}({value.sortable}){_collated(value)}", comparand(value.column)

    @staticmethod
    def _total(op: str, value: Operand) -> tuple[str, Encode | None]:
        column = value.column
        if column is None:  # inside JSON there may be anything
            return f"{op}(CASE WHEN {value.sort} = 'number' THEN {value.sql} END)", number
        if column.type.sums is None:
            raise QueryError(f"{column.name} is not a number: there is no {op} of it")
        sql = f"{column.type.measure_sql(op, value.sql)}{_collated(value)}"
        return sql, comparand(column) if column.type.sums == "value" else number

    # the statement
    def statement(self) -> Statement:
        plan = self._plan
        where = self._filter()
        select, group = self._select()
        having = ""
        if plan.having is not None:
            self._part = "having"
            having = f" HAVING {condition(plan.having, self)}"
        order = self._order(group)
        if isinstance(plan.where, Compare) and self._single and plan.output == "rows" and not plan.offset:
            return self._lookup(select, where)
        sql = f"SELECT {select} FROM {self._from()}"
        conditions = [*([where] if where else []), *self._bounds()]  # few rows pass a filter, most pass the bounds
        if conditions:
            sql += f" WHERE {' AND '.join(conditions)}"
        sql += (f" GROUP BY {', '.join(group)}" if group else "") + having + order
        if plan.limit or plan.offset:
            sql += f" LIMIT {self._bound('limit') if plan.limit else '-1'}"
            sql += f" OFFSET {self._bound('offset')}" if plan.offset else ""
        return Statement(sql, tuple(self._slots))

    @property
    def _single(self) -> bool:
        """Whether the key is known, so that there is one row at most."""
        return self._known_key is not None and not self._plan.history and not self._plan.hops

    def _lookup(self, select: str, where: str) -> Statement:
        """Nothing but a key: the last row that the index has of it. A deletion hides what was before it."""
        info = self._rows[0].info
        visible, deleted = self._sources.visible(info, "t0"), self._sources.deleted(info, "t0")
        conditions = [where, *([visible] if visible else [])]
        conditions += [f"t0.commit_id <= {self._as_of}"] if self._as_of else []
        sql = f"SELECT {select}{f', {deleted}' if deleted else ''} FROM {self._from()} WHERE {' AND '.join(conditions)}"
        limit = f"min(1, {self._bound('limit')})" if self._plan.limit else "1"
        return Statement(f"{sql} ORDER BY t0.commit_id DESC LIMIT {limit}", tuple(self._slots), deleted is not None)

    def _filter(self) -> str:
        self._part = "where"
        shape: Shape | None = self._plan.where
        return "" if shape is None else _conjunction(shape, self._conjunct)

    def _conjunct(self, shape: Shape) -> str:
        sql = condition(shape, self)
        root = self._rows[0]
        if (
            root.info.kind == "entity" and isinstance(shape, Compare) and shape.op == "==" and shape.other is None
            and isinstance(shape.ref, ValueRef) and self._row_of(shape.ref) is root
            and shape.ref == ValueRef(root.cls, root.info.keys[0].name, at=shape.ref.at)
        ):  # fmt: skip
            self._known_key = f"?{len(self._slots)}"
        return sql

    def _select(self) -> tuple[str, list[str]]:
        plan = self._plan
        if plan.output == "rows":
            shown = [row for n, row in enumerate(self._rows) if plan.relations or n % 2 == 0]
            columns = [columns_of(row.info, row.alias) for row in shown]
            if plan.deletions:
                columns.append(self._sources.deleted(shown[0].info, shown[0].alias) or "0")
            return ", ".join(columns), []
        group = [operand(ref, self).ordered for ref in plan.groups]
        self._part = "measures"
        measures = [self.measure(measure)[0] for measure in plan.measures]
        return ", ".join([*group, *measures]) or "count(*)", group

    def _order(self, group: list[str]) -> str:
        plan = self._plan
        self._part = "where"
        terms = [f"{operand(order.ref, self).sortable}{' DESC' if order.descending else ''}" for order in plan.order]
        if plan.output == "rows" and not self._single and (not plan.hops or terms or plan.limit or plan.offset):
            # In the order in which rows were written, if in no other; so that every answer has one order.
            terms += [f"{row.alias}.rowid" for row in self._rows]
        elif plan.output == "groups" and not terms:
            terms = group
        return f" ORDER BY {', '.join(terms)}" if terms else ""

    def _from(self) -> str:
        root, sql = self._rows[0], self._root()[0]
        for position, hop in enumerate(self._plan.hops):
            near, relation, far = self._rows[2 * position : 2 * position + 3]
            here, there = ("left_key", "right_key") if hop.forward else ("right_key", "left_key")
            key = self._sources.key
            on = f"{key(relation.alias, here)} = {key(near.alias, 'entity_key')}"
            latest = self._sources.latest(relation.info, relation.alias, self._as_of)
            sql += f" JOIN {self._sources.source(relation.info)} AS {relation.alias} ON {on} AND {latest}"
            sql += f" JOIN {self._entity(far, key(relation.alias, there))}"
        for side, row in self._ends.items():
            sql += f" LEFT JOIN {self._entity(row, self._sources.key(root.alias, f'{side}_key'))}"
        return sql

    def _entity(self, row: _Row, key: str) -> str:
        """What to join for the latest state of the entity of a key."""
        source, name = self._sources.source(row.info), self._sources.key_column("entity_key")
        latest = self._sources.latest_of(row.info, row.alias, key, self._as_of)
        return f"{source} AS {row.alias} ON {row.alias}.{quoted(name)} = {key} AND {latest}"

    def _root(self) -> tuple[str, str]:
        """What the rows of the root are read from, and a condition on those that are the latest."""
        root, plan = self._rows[0], self._plan
        extremes = plan.output == "measures" and any(measure.op in ("min", "max") for measure in plan.measures)
        plain = {column.name for column in root.info.columns if not (column.indexed or column.unique)}
        found = () if plan.where is None else refs_of(plan.where)
        if not (plan.history or plan.since or plan.hops or plan.limit or extremes) and all(
                ref.side is None and ref.name in plain for ref in found):
            # No index leads past rows, and nothing ends the statement early.
            return self._sources.scan(root.info, root.alias, self._as_of, filtered=plan.where is not None)
        return (f"{self._sources.source(root.info)} AS {root.alias}",
                self._sources.latest(root.info, root.alias, self._as_of))

    def _bounds(self) -> list[str]:
        """Which rows of the root count: all of history within the bounds if asked for, else the latest."""
        row = self._rows[0]
        found = []
        if self._plan.history:
            visible, deleted = (of(row.info, row.alias) for of in (self._sources.visible, self._sources.deleted))
            found += [f"{row.alias}.commit_id <= {self._as_of}"] if self._as_of else []
            found += [visible] if visible else []
            found += [f"NOT {deleted}"] if deleted and not self._plan.deletions else []
        elif self._known_key is not None:
            found.append(self._sources.latest_of(row.info, row.alias, self._known_key, self._as_of))
        else:
            found.append(self._root()[1])
        if self._since:
            found.append(f"{row.alias}.commit_id > {self._since}")
        return found


def _conjunction(shape: Shape, text: Callable[[Shape], str]) -> str:
    """`a & b & c` without parentheses around each other, which the planner likes better."""
    if isinstance(shape, Junction) and shape.op == "and":
        parts = [_conjunction(part, text) for part in shape.parts]
        return " AND ".join(parts) if len(parts) <= FEW else balanced("AND", parts)
    return text(shape)


def _collated(value: Operand) -> str:
    scalar = value.column.type if value.column is not None else scalars.JSON
    return f" COLLATE {scalar.collation}" if scalar.collation is not None else ""


def _refuse_containers(column: Column | None, op: str) -> None:
    if column is not None and column.spec["kind"] in ("list", "dict", "typed_dict", "ref"):
        raise QueryError(f"{column.name} holds lists or dicts, which have no order: there is no {op} of it")


def _length(value: Operand) -> str:
    """How long text is, or how many elements a list or an object has."""
    if value.json_type is None:
        if value.column is None or not value.column.type.sized:
            raise QueryError(f"{value.column.name if value.column else 'the value'} has no length",
                             hint="avg_len is for text, bytes, lists and dicts")
        return f"length({value.sql})"
    elements = f"(SELECT count(*) FROM json_each({value.sql}))"
    text = value.sql if value.column is None else f"{value.sql} ->> '$'"
    return f"CASE {value.json_type} WHEN 'array' THEN {elements} WHEN 'object' THEN {elements} "\
        f"WHEN 'text' THEN length({text}) END"


def key_columns(info: TypeInfo | StoredType) -> tuple[str, ...]:
    """The columns that name a row. A relation has an instance key always, empty if it was not declared."""
    return ("entity_key",) if info.kind == "entity" else ("left_key", "right_key", "instance_key")


def columns_of(info: TypeInfo | StoredType, alias: str) -> str:
    """The columns of a type in the order of its fields, and the commit behind them."""
    names = [f"{alias}.{quoted(column.column)}" for column in info.all_columns]
    return ", ".join([*names, f"{alias}.commit_id"])
