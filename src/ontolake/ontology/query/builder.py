"""Queries: built step by step, each step a new query, answered by the repository in one statement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast

from ontolake.model.entity import Entity, Relation
from ontolake.model.filters import Aggregate, Condition, FieldRef, Measure, Order, narrowed, refs_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.migration.upgraders import UpgraderOption
from ontolake.ontology.query.aggregates import avg, avg_len, count, count_where, max_, min_, ref_of, sum_
from ontolake.ontology.query.bounds import commit_number, natural
from ontolake.ontology.query.ends import give_ends
from ontolake.ontology.query.hydration import hydrator
from ontolake.ontology.query.plan import Plan, PlanHop, Values, with_hop, with_limit, with_where
from ontolake.ontology.query.question import Past, Question, has_relations, is_present, question_of, reading_of
from ontolake.ontology.query.results import Path, Results
from ontolake.ontology.repository.protocol import Repository

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
E = TypeVar("E", bound=Entity)
Rel = TypeVar("Rel", bound=Relation[Any, Any])
Check = Callable[[Any], object]


class QueryStart:
    """What `session.query()` gives: say whether you want entities or relations."""

    __slots__ = ("_check", "_delete", "_repository")

    def __init__(self, repository: Repository, check: Check, delete: Callable[..., None] | None = None) -> None:
        self._repository = repository
        self._check = check
        self._delete = delete

    def of(self, info: TypeInfo) -> Query[Any]:
        """Entities or relations of a type, whichever it has."""
        return self._start(info.cls, info.kind)

    def entities(self, cls: type[E]) -> Query[E]:
        """Entities of a type."""
        return self._start(cls, "entity")

    def relations(self, cls: type[Rel]) -> Query[Rel]:
        """Relations of a type."""
        return self._start(cls, "relation")

    def _start(self, cls: Any, kind: str) -> Query[Any]:
        if getattr(cls, "__ontolake_kind__", None) != kind:
            raise QueryError(f"{cls!r} is not a type of {'entities' if kind == 'entity' else 'relations'}")
        past = None
        if type_info(cls).version is None:
            self._check(cls)
        else:
            past = Past()  # a class of the past, which is read by no other schema
        return Query(self._repository, self._check, Plan(cls), Values(), past, self._delete)


class Query(Generic[T]):
    """A query for objects of one type, or for paths once it goes `via` a relation."""

    __slots__ = ("_check", "_delete", "_past", "_plan", "_repository", "_values")

    def __init__(
        self, repository: Repository, check: Check, plan: Plan, values: Values, past: Past | None = None,
        delete: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        self._delete = delete
        self._repository = repository
        self._check = check
        self._plan = plan
        self._values = values
        self._past = past

    def _with(self, plan: Plan, values: Values | None = None) -> Self:
        return type(self)(self._repository, self._check, plan, self._values if values is None else values, self._past,
                          self._delete)

    def question(self) -> AbstractContextManager[Question]:
        """Whom to ask what, as data, for tools that want rows as they are stored."""
        return self._question(self._plan, self._values)

    @property
    def types(self) -> tuple[Any, ...]:
        """The types along the path: the first one, then the relation and the entity of each step."""
        return self._plan.types

    @property
    def has_history(self) -> bool:
        """Whether every state of a row is asked for."""
        return self._plan.history

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Why results may be fewer than expected; empty if there is nothing to say."""
        return diagnostics(self._repository, self._plan, self._values) if self._past is None else {}

    # what to read
    def where(self, *conditions: Condition) -> Self:
        """Only rows that fulfil all of these, and what was asked for before."""
        for condition in conditions:
            if not isinstance(condition, Condition):
                raise QueryError(f"{condition!r} is not a filter", hint='write Type.field == "value"')
        if not conditions:
            return self
        shape, found = narrowed(self._plan.where, self._values.where, conditions)
        return self._with(with_where(self._plan, shape), Values(found, *self._values[1:]))

    def order_by(self, *fields: FieldRef[Any] | Order) -> Self:
        """Sort by these, the first one first; `Type.field.desc()` sorts downwards."""
        order = tuple(field if isinstance(field, Order) else Order(ref_of(field), False) for field in fields)
        return self._with(self._plan._replace(order=self._plan.order + order))

    def limit(self, number: int) -> Self:
        return self._with(self._plan._replace(limit=True), self._values._replace(limit=natural(number, "limit")))

    def offset(self, number: int) -> Self:
        """Leave out so many at the start; works without a limit too."""
        return self._with(self._plan._replace(offset=True), self._values._replace(offset=natural(number, "offset")))

    def via(self, relation: type[Relation[Any, Any]], *, direction: Literal["forward", "reverse"] | None = None
            ) -> Query[Path]:
        """Go on over a relation: from its left end to its right one, or `reverse`; from where we are if that is clear.

        Results are `Path`s from then on. A filter or order names the last row of its type on the path so far:
        `entities(Person).where(Person.id == "ann").via(Follows)` starts from ann, and a `where` behind `via` is about
        whom she follows.
        """
        info = type_info(relation)
        if info.kind != "relation":
            raise QueryError(f"{info.name} is not a relation")
        if info.version is None:
            self._check(relation)
        here = self._plan.types[-1]
        if type_info(here).kind != "entity":
            raise QueryError("a traversal starts from entities", hint="begin with .entities(Type)")
        ends = {"forward": info.left, "reverse": info.right}
        fitting = [way for way, start in ends.items() if start is here and direction in (None, way)]
        if not fitting:
            raise QueryError(f"{info.name} leads from {info.left.__name__} to {info.right.__name__}, "
                             f"and cannot be taken {direction or 'either way'} from {here.__name__}")
        hop = PlanHop(relation, fitting[0] == "forward")
        if info.version is None:
            self._check(info.right if hop.forward else info.left)
        return Query(self._repository, self._check, with_hop(self._plan, hop), self._values, self._past)

    def without_relations(self) -> Self:
        """Paths with their entities only."""
        return self._with(self._plan._replace(relations=False))

    # when
    def as_of(
        self, commit_id: int | str | datetime, *, schema: Literal["stored", "current"] | None = None,
        upgraders: UpgraderOption = None,
    ) -> Self:  # fmt: skip
        """As it was after this commit. Answers raise `UnknownCommitError` if it is not there by then.

        Where there are branches, a commit of another one is read as that has it, and a tag, a time or any other
        reference says which commit is meant.

        Rows from before a migration are left out, and diagnostics say so, unless `schema` says how to read them:
        `"stored"` by the schema of their time, as objects of a class that has its fields; `"current"` as objects of
        today's class, led through the upgraders: those that are given, else those declared with `@upgrader`. Answers
        then raise `MissingUpgraderError` where one is needed that is not there, and `MigrationError` if one fails.
        """
        if isinstance(commit_id, str | datetime):
            if not self._repository.keeps_branches:
                raise QueryError(f"as_of takes a number from 0 on, not {commit_id!r}: the engine "
                                 f"{self._repository.engine_version} has no tags, and finds no commit by its time",
                                 hint="onto convert --engine-version v3 makes a copy that has and does")
            commit_id = self._repository.resolve(commit_id)
        at = commit_number(commit_id, "as_of")
        found = self._with(self._plan._replace(as_of=True), self._values._replace(as_of=at))
        found._past = reading_of(schema, upgraders) if schema is not None or upgraders is not None else (
            None if type_info(self._plan.root).version is None else Past())
        return found

    def with_history(self) -> Self:
        """Every state of every row, in the order of commits.

        Where rows can be deleted, their ends are states too: `meta().deleted` is true then, and the fields are the last
        ones.
        """
        return self._with(self._plan._replace(history=True, deletions=self._tells_deletions))

    @property
    def _tells_deletions(self) -> bool:
        return self._repository.keeps_deletions and not self._plan.hops

    def history_since(self, commit_id: int) -> Self:
        """Every state that came after this commit. Answers raise `UnknownCommitError` if it is not there by then."""
        return self._with(self._plan._replace(history=True, since=True, deletions=self._tells_deletions),
                          self._values._replace(since=commit_number(commit_id, "history_since")))

    # answers
    def collect(self) -> Results[T]:
        """All results."""
        plan, values = self._plan, self._values
        if (not plan.as_of and not plan.hops and not has_relations(plan)
                and is_present(self._repository, values, self._past)):  # fmt: skip
            rows = self._repository.run(plan, values)
            if not plan.deletions:
                return Results(hydrator(plan.root)(rows))  # lookups take no detours
            return Results(Question(self._repository, plan, values).objects(plan.root, rows))
        with self._question(self._plan, self._values) as question:
            return Results(cast("list[T]", self._found(question)), self.diagnostics)

    def first(self) -> T | None:
        """The first result, or None."""
        plan = self._plan
        if not plan.limit:
            plan = with_limit(plan)
            values = Values(*self._values[:5], 1, self._values.offset)
        else:
            values = self._values._replace(limit=min(1, self._values.limit or 0))
        if (not plan.hops and not plan.deletions and not has_relations(plan)
                and is_present(self._repository, values, self._past)):  # fmt: skip
            found = hydrator(plan.root)(self._repository.run(plan, values))
        else:
            with self._question(plan, values) as question:
                found = self._found(question)
        return found[0] if found else None

    def delete(self, *, cascade: bool = False) -> int:
        """Declare that the results are to go, as `Session.delete` does, and return how many these are.

        Raises `QueryError` for a query about the past or over relations, and what `Session.delete` raises.
        """
        plan = self._plan
        if self._delete is None or plan.hops or plan.as_of or plan.history:
            raise QueryError("only what is there now can be deleted, and only by a session",
                             hint="ask for entities or relations as they are, without as_of, via and history")
        found = self.collect()
        self._delete(list(found), cascade=cascade)
        return len(found)

    def to_arrow(self) -> pa.Table:
        """All results as an Arrow table: the fields under their stored names, and `commit_id`.

        A history of a store that keeps deletions has a column `deleted` behind it.
        """
        if self._plan.hops:
            raise QueryError("paths have no Arrow form", hint="query the relation, or collect() the paths")
        with self._question(self._plan, self._values) as question:
            return question.source.run_arrow(question.plan, question.values)

    def _question(self, plan: Plan, values: Values) -> AbstractContextManager[Question]:
        return question_of(self._repository, plan, values, self._past)

    def _found(self, question: Question) -> list[Any]:
        """The objects or paths of an answer."""
        plan = question.plan
        rows = question.source.run(plan, question.values)
        return _paths(question, list(rows)) if plan.hops else question.objects(plan.root, rows)

    # aggregates
    def count(self) -> int:
        """How many results there are."""
        return int(self._measured(count()))

    def count_where(self, condition: Condition) -> int:
        """How many results also fulfil this."""
        return int(self._measured(count_where(condition)))

    def sum(self, field: FieldRef[Any]) -> Any:
        """The sum of a field; None if there is no value."""
        return self._measured(sum_(field))

    def avg(self, field: FieldRef[Any]) -> Any:
        return self._measured(avg(field))

    def min(self, field: FieldRef[Any]) -> Any:
        return self._measured(min_(field))

    def max(self, field: FieldRef[Any]) -> Any:
        return self._measured(max_(field))

    def avg_len(self, field: FieldRef[Any]) -> float | None:
        """How long text is, or how many elements lists and dicts have, on average."""
        return cast("float | None", self._measured(avg_len(field)))

    def group_by(self, *fields: FieldRef[Any]) -> Grouped:
        """Aggregate by these fields."""
        if not fields:
            raise QueryError("group_by() needs a field")
        return Grouped(self._plan._replace(output="groups", groups=tuple(ref_of(field) for field in fields)),
                       self._values, self._repository, self._past)

    def _measured(self, aggregate: Aggregate) -> Any:
        plan = self._plan
        if plan.limit or plan.offset:
            raise QueryError(f"limit and offset mean nothing for {aggregate.ref.op}",
                             hint="collect() the results, or leave them out")
        plan = plan._replace(output="measures", measures=(aggregate.ref,), order=())
        with self._question(plan, self._values) as question:
            rows = list(question.source.run(question.plan, self._values._replace(measures=aggregate.values)))
        return decode_measure(question.plan.measures[0], rows[0][0])


class Grouped:
    """A query by groups: narrow them with `having`, measure them with `agg`."""

    __slots__ = ("_past", "_plan", "_repository", "_values")

    def __init__(self, plan: Plan, values: Values, repository: Repository, past: Past | None = None) -> None:
        self._plan = plan
        self._values = values
        self._repository = repository
        self._past = past

    def having(self, *conditions: Condition) -> Grouped:
        """Only groups that fulfil this: `having(count() > 5)`."""
        for condition in conditions:
            if not isinstance(condition, Condition):
                raise QueryError(f"{condition!r} is not a filter", hint="write having(count() > 5)")
            for ref in refs_of(condition.shape):
                if ref not in self._plan.groups:
                    raise QueryError(f"having() cannot ask for {ref.name}, which differs within a group",
                                     hint="compare an aggregate or a field that you group by; filter rows with where()")
        if not conditions:
            return self
        shape, found = narrowed(self._plan.having, self._values.having, conditions)
        return Grouped(self._plan._replace(having=shape), self._values._replace(having=found), self._repository,
                       self._past)

    def agg(self, *unnamed: Aggregate, **named: Aggregate) -> Results[dict[str, Any]]:
        """One dict per group: its fields by name, then the aggregates by theirs.

        An aggregate without a name is called after what it does: `count`, `sum_total`.
        """
        measures = {_alias(aggregate): aggregate for aggregate in unnamed} | named
        if not measures:
            measures = {"count": count()}
        for name, aggregate in measures.items():
            if not isinstance(aggregate, Aggregate):
                raise QueryError(f"{name}={aggregate!r} is not an aggregate", hint="write n=count(), t=sum_(Type.f)")
        if self._plan.limit or self._plan.offset:
            raise QueryError("limit and offset mean nothing for groups", hint="slice the list of groups")
        plan = self._plan._replace(measures=tuple(aggregate.ref for aggregate in measures.values()))
        keys = [_key_name(ref, plan) for ref in plan.groups]
        for name in measures:
            if name in keys:
                raise QueryError(f"{name!r} is the name of a field that is grouped by, and of an aggregate",
                                 hint="give the aggregate another name")
        given: tuple[Any, ...] = ()
        for aggregate in measures.values():
            given += aggregate.values
        with question_of(self._repository, plan, self._values, self._past) as question:
            rows = list(question.source.run(question.plan, self._values._replace(measures=given)))
            told = diagnostics(self._repository, plan, self._values) if self._past is None else {}
        groups, width = question.plan.groups, len(keys)
        return Results((
            {
                **{name: _decoded(ref, value) for name, ref, value in zip(keys, groups, row[:width], strict=True)},
                **{name: decode_measure(measure, value)
                   for name, measure, value in zip(measures, question.plan.measures, row[width:], strict=True)},
            }
            for row in rows
        ), told)  # fmt: skip


def diagnostics(repository: Repository, plan: Plan, values: Values) -> dict[str, Any]:
    """Why there may be less than expected: the moment asked about lies before what typed reads can see."""
    if values.as_of is None:
        return {}
    there = repository.holding(values.as_of)
    activation = max(there.activation(type_info(cls)) for cls in plan.types)
    if values.as_of >= activation:
        return {}
    return {"reason": "commit_before_activation", "activation_commit_id": activation}


def _paths(question: Question, rows: list[tuple[Any, ...]]) -> list[Path]:
    plan = question.plan
    shown = [cls for n, cls in enumerate(plan.types) if plan.relations or n % 2 == 0]
    parts, start = [], 0
    for cls in shown:
        info = type_info(cls)
        width = len(info.all_columns) + 1
        parts.append(_shared(question, cls, [row[start : start + width] for row in rows], info.kind == "entity"))
        start += width
    if plan.relations:
        entities, relations = parts[::2], parts[1::2]
        for hop, here, over, there in zip(plan.hops, entities[:-1], relations, entities[1:], strict=True):
            give_ends(over, *((here, there) if hop.forward else (there, here)))
        return [Path(way, over) for way, over in
                zip(zip(*entities, strict=True), zip(*relations, strict=True), strict=True)]
    return [Path(way) for way in zip(*parts, strict=True)]


def _shared(question: Question, cls: Any, rows: list[tuple[Any, ...]], share: bool) -> list[Any]:
    """Objects of rows; of the same entity only one, however often paths go through it."""
    if not share:
        return question.objects(cls, rows)
    places: dict[tuple[Any, ...], int] = {}
    order = [places.setdefault(row, len(places)) for row in rows]
    objects = question.objects(cls, places)
    return [objects[place] for place in order]


def decode_measure(measure: Measure, value: Any) -> Any:
    """The value of an aggregate as Python has it."""
    if value is None or measure.ref is None or measure.op in ("count", "count_where", "avg_len"):
        return value
    column = _column(measure.ref)
    if column is None or column.scalar is None:
        return value
    return column.decode(value) if measure.op in ("min", "max") else column.type.measured(measure.op, value)


def _column(ref: Any) -> Any:
    if ref.path:
        return None
    owner = ref.owner
    if ref.side:
        info = type_info(owner)
        owner = info.left if ref.side == "left" else info.right
    return type_info(owner).by_name[ref.name]


def _decoded(ref: Any, value: Any) -> Any:
    column = _column(ref)
    return value if column is None else column.decode(value)


def _alias(aggregate: Aggregate) -> str:
    if not isinstance(aggregate, Aggregate):
        raise QueryError(f"{aggregate!r} is not an aggregate", hint="write count(), sum_(Type.field)")
    return aggregate.ref.op if aggregate.ref.ref is None else f"{aggregate.ref.op}_{aggregate.ref.ref.name}"


def _key_name(ref: Any, plan: Plan) -> str:
    """What a group's field is called: by its name, with more in front where two have the same."""
    name = ".".join([ref.name, *map(str, ref.path)])
    alike = [other for other in plan.groups if other.name == ref.name and other.path == ref.path]
    return name if len(alike) < 2 else f"{ref.side or ref.owner.__name__}.{name}"
