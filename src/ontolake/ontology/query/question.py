"""How a question is put to a store: at one moment, and in the schemas in which its rows are to be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ontolake.model.entity import DELETED
from ontolake.model.types import type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.migration.past import plan_at
from ontolake.ontology.migration.past_rows import Lifted, Upgraders, in_order
from ontolake.ontology.migration.upgraders import UpgraderOption, collected
from ontolake.ontology.query.bounds import check_commits
from ontolake.ontology.query.ends import EndLoader
from ontolake.ontology.query.hydration import hydrator
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Repository, Row

if TYPE_CHECKING:
    import pyarrow as pa


class Past(NamedTuple):
    """How rows from before a migration are read: `stored` or `current`, which takes upgraders.

    Without a schema it stands for a class of the past that nobody has said how to read.
    """

    schema: str | None = None
    upgraders: Upgraders | None = None


class ReadingMoment(NamedTuple):
    """When a question was put, and how rows are read that are from before."""

    repository: Repository
    commit: int
    past: Past | None

    def ends(self, left: list[Any], right: list[Any]) -> EndLoader:
        """What loads the ends of relations with these keys."""
        return EndLoader(self.repository, self.commit, self.past, left, right)


class PlanSource(Protocol):
    """What answers plans."""

    def run(self, plan: Plan, values: Values) -> Iterator[Row]: ...

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table: ...


class Question(NamedTuple):
    """What to ask, and whom. `same` has classes of the past in place of which objects can be of the caller's class.

    `moment` is what relations need to load their ends.
    """

    source: PlanSource
    plan: Plan
    values: Values
    same: Mapping[Any, Any] = {}
    moment: ReadingMoment | None = None

    def objects(self, cls: Any, rows: Iterable[Row]) -> list[Any]:
        """Objects of rows of a type of the plan."""
        if self.plan.deletions:
            return self._states(cls, list(rows))
        own = self.same.get(cls)
        ends = None if self.moment is None else self.moment.ends
        if own is None:
            return hydrator(cls)(rows, ends)
        return hydrator(own)(in_order(type_info(cls), [column.stored for column in type_info(own).all_columns], rows),
                             ends)

    def _states(self, cls: Any, rows: list[Row]) -> list[Any]:
        """Objects of a history that tells deletions."""
        found = self._replace(plan=self.plan._replace(deletions=False)).objects(cls, (row[:-1] for row in rows))
        for obj, row in zip(found, rows, strict=True):
            if row[-1]:
                obj.__dict__[DELETED] = True
        return found


def reading_of(schema: Any, upgraders: UpgraderOption) -> Past:
    """How to read the past, as a caller said. Raises `QueryError`, and `MigrationError` for what are no upgraders."""
    if schema not in ("stored", "current"):
        wrong = "upgraders need schema='current'" if schema is None else f"there is no schema {schema!r}"
        raise QueryError(wrong, hint='write schema="stored" or schema="current"')
    if schema == "stored" and upgraders is not None:
        raise QueryError("rows as they are stored go through no upgraders", hint='write schema="current"')
    return Past(schema, collected(upgraders) if schema == "current" else None)


def is_present(repository: Repository, values: Values, past: Past | None) -> bool:
    """Whether nothing has to be looked at before a plan is answered: its bounds are there, its schema is current."""
    seen = repository.seen_head
    return past is None and (values.as_of is None or values.as_of <= seen) and (
        values.since is None or values.since <= seen)


@contextmanager
def question_of(repository: Repository, plan: Plan, values: Values, past: Past | None) -> Iterator[Question]:
    """The question of a plan. What is read within the block is of one moment, if the plan has bounds in time.

    Raises `UnknownCommitError` for a bound beyond the head, and `QueryError` for what cannot be read so.
    """
    relations = plan.output == "rows" and has_relations(plan)
    if not relations and is_present(repository, values, past):
        yield Question(repository, plan, values)
        return
    with repository.reading():
        check_commits(repository, values.as_of, values.since)
        found = _question(repository, plan, values, past)
        if relations:
            commit = repository.head() if values.as_of is None else values.as_of
            found = found._replace(moment=ReadingMoment(repository, commit, past))
        yield found


def has_relations(plan: Plan) -> bool:
    """Whether results are relations, whose ends may be asked for. Those of paths have them from their path."""
    return bool(plan.root.__ontolake_kind__ == "relation")


def _question(repository: Repository, plan: Plan, values: Values, past: Past | None) -> Question:
    if past is None:
        return Question(repository, plan, values)
    of_past = next((cls.__name__ for cls in plan.types if type_info(cls).version is not None), None)
    if values.as_of is None or (of_past is not None and past.schema != "stored"):
        raise QueryError(f"{of_past} is a class of the past", hint='write .as_of(commit, schema="stored")')
    if past.schema == "stored":
        found, same = plan_at(repository, plan, values.as_of)
        return Question(repository, found, values, same)
    return Question(Lifted(repository, past.upgraders or {}, values.as_of), plan, values)
