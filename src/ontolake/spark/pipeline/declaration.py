"""`Pipeline`: sources, typed targets, checks and expectations, declared in a Python module and run as one publish.

    pipeline = Pipeline("shop", types=[Customer])
    customers = pipeline.csv("customers", "{data}/customers.csv")
    pipeline.load(Customer, customers, columns={"id": "customer_id", "name": "trim(name)"})
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, get_args

from ontolake.model.field import UNSET
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.versioned import table_of
from ontolake.spark.errors import PipelineError
from ontolake.spark.pipeline.limits import Limit, checked_limit
from ontolake.spark.pipeline.sources import Source
from ontolake.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ontolake.spark.pipeline.report import Report
    from ontolake.spark.pipeline.run import Progress

DanglingPolicy = Literal["fail", "quarantine", "allow"]
"""What becomes of a relation that names an end which was never there: the run fails, the row is rejected, or it is
published."""

VanishedPolicy = Literal["keep", "delete", "fail"]
"""What becomes of rows of the store that the source no longer has: they stay, are deleted, or the run fails."""

VANISHED: Mapping[VanishedPolicy, Limit | None] = {"keep": None, "delete": 0.05, "fail": 0}
"""The share or number of rows that may vanish before a run fails, unless told otherwise; None for all."""

REJECTED = 0.1
"""The share of rows that may be bad before a run fails, unless told otherwise."""


@dataclass(frozen=True)
class Target:
    """Rows of a source as objects of a type: an SQL expression for each field, conditions that rows must fulfil."""

    info: TypeInfo
    source: Source
    columns: Mapping[str, str]
    checks: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    vanished: VanishedPolicy | None = None
    dangling: DanglingPolicy | None = None
    max_vanished: Limit | None = None
    cascade: bool = False

    @property
    def table(self) -> str:
        return table_of(self.info)


@dataclass(frozen=True)
class Expectation:
    """What must hold of the state that a run would publish: SQL that finds nothing, or a number of rows."""

    name: str
    sql: str | None = None
    table: str | None = None
    at_least: int | None = None
    at_most: int | None = None


class Pipeline:
    """What to read, as what, and what must be true before it is published."""

    def __init__(
        self, name: str, *, types: Iterable[Any], parameters: Mapping[str, str] | None = None,
        max_rejected: float | int = REJECTED, folder: str | Path | None = None, dangling: DanglingPolicy = "fail",
    ) -> None:  # fmt: skip
        """`parameters` are defaults for `{names}` in paths. `max_rejected` is how many rows may be bad: a share up
        to 1.0, or a number. Paths are relative to `folder`, that of the module unless given. `dangling` is what becomes
        of relations whose ends were never there, unless a load says otherwise."""
        if not name or not isinstance(name, str):
            raise PipelineError("a pipeline needs a name")
        self.name = name
        self.types = tuple(types)
        self._infos = {info.cls: info for info in map(type_info, self.types)}
        self.parameters = dict(parameters or {})
        self.max_rejected = checked_limit("max_rejected", max_rejected)
        self.dangling = _policy(dangling)
        caller = inspect.stack()[1].filename
        self.folder = Path(folder) if folder is not None else (
            Path(caller).resolve().parent if Path(caller).is_file() else Path.cwd())
        self.sources: dict[str, Source] = {}
        self.targets: list[Target] = []
        self.expectations: list[Expectation] = []

    # sources
    def csv(self, name: str, path: str, *, columns: Sequence[str] | None = None, **options: Any) -> Source:
        """Lines of CSV with a header, unless `header=False` and `columns`. Options are those of Spark's reader."""
        return self._add(Source(name, "csv", path, _texts(options), columns))

    def json(self, name: str, path: str, *, columns: Sequence[str] | None = None, **options: Any) -> Source:
        """One JSON object a line. `columns` names the fields that count; else the first thousand lines tell."""
        return self._add(Source(name, "json", path, _texts(options), columns))

    def parquet(self, name: str, path: str, **options: Any) -> Source:
        return self._add(Source(name, "parquet", path, _texts(options)))

    def format(self, name: str, format: str, path: str | None = None, **options: Any) -> Source:
        """Anything that Spark reads: `format("old", "jdbc", url=…, dbtable=…)`, another store with `"ontolake"`."""
        return self._add(Source(name, format, path, _texts(options)))

    def frame(self, name: str, make: Callable[[SparkSession], DataFrame]) -> Source:
        """A DataFrame that a function makes when the pipeline runs."""
        return self._add(Source(name, "function", make=make))

    def _add(self, source: Source) -> Source:
        if source.name in self.sources:
            raise PipelineError(f"{self.name} has two sources called {source.name!r}")
        self.sources[source.name] = source
        return source

    # targets
    def load(
        self, cls: Any, source: Source, *, columns: Mapping[str, str] | None = None,
        checks: Mapping[str, str] | None = None, where: str | None = None,
        vanished: VanishedPolicy | bool | None = None, max_vanished: Limit | None = None, cascade: bool = False,
        dangling: DanglingPolicy | None = None,
    ) -> None:  # fmt: skip
        """Make objects of a type from the rows of a source.

        `columns` gives SQL for fields; a field without is the column of its name. `checks` are conditions on the
        fields, by what they are called in the quarantine. `where` takes rows that count. `dangling` is what becomes of
        a relation of which an end is neither in the store nor in the run: `fail` the run, `quarantine` the row, or
        `allow` it. A relation of which an end was rejected goes to quarantine, too.

        `vanished` is for sources that have all rows of the type: what becomes of those of the store that the source no
        longer has. `keep` counts them (as True does), `delete` deletes them in the same commit, `fail` fails the run.
        If more than `max_vanished` are missing, a share up to 1.0 or a number, the run fails: the source may have come
        half empty. That is 0.05 for `delete`, 0 for `fail`, and all for `keep`, unless given. Relations that lead to a
        deleted entity must vanish in the same run, or go with it by `cascade`. Raises `PipelineError`.
        """
        info = self._known(cls)
        for end in (info.left, info.right) if info.kind == "relation" else ():
            self._known(end)
        if source not in self.sources.values():
            raise PipelineError(f"{source!r} is not a source of the pipeline {self.name!r}")
        if any(target.info is info for target in self.targets):
            raise PipelineError(f"{info.name} is loaded twice", hint="union the sources with frame()")
        known = {column.name for column in info.all_columns} | {column.stored for column in info.all_columns}
        unknown = sorted(set(columns or {}) - known)
        if unknown:
            raise PipelineError(f"{info.name} has no field {unknown[0]!r}", hint=f"it has {', '.join(info.by_name)}")
        if dangling is not None and info.kind != "relation":
            raise PipelineError(f"{info.name} is not a relation, and has no ends", hint="leave out dangling=")
        chosen = _vanishing(vanished)
        if chosen is None and max_vanished is not None:
            raise PipelineError(f"max_vanished of {info.name} says nothing without vanished",
                                hint='write vanished="keep", "delete" or "fail"')
        if cascade and (chosen != "delete" or info.kind == "relation"):
            raise PipelineError(f"cascade of {info.name} says nothing: no entities are deleted",
                                hint='it goes with vanished="delete" of an entity')
        if chosen is not None and max_vanished is None:
            max_vanished = VANISHED[chosen]
        self.targets.append(Target(info, source, dict(columns or {}), dict(checks or {}), where, chosen,
                                   None if dangling is None else _policy(dangling),
                                   None if max_vanished is None else checked_limit("max_vanished", max_vanished),
                                   cascade))

    def _known(self, cls: Any) -> TypeInfo:
        info = self._infos.get(cls)
        if info is None:
            raise PipelineError(f"{getattr(cls, '__name__', cls)!r} is not one of the types of the pipeline "
                                f"{self.name!r}", hint="name it in types=[…]")
        return info

    # expectations
    def expect(self, name: str, sql: str) -> None:
        """A query over the types, by their names, that must find nothing: each row that it finds is a violation."""
        self.expectations.append(Expectation(name, sql=sql))

    def expect_rows(self, cls: Any, *, at_least: int | None = None, at_most: int | None = None) -> None:
        """How many rows a type has after the run."""
        info = self._known(cls)
        self.expectations.append(Expectation(f"rows of {info.name}", table=table_of(info), at_least=at_least,
                                             at_most=at_most))

    def expect_unique(self, cls: Any, *fields: str) -> None:
        """No two rows of a type have the same values in these fields; rows without a value in one do not count."""
        info = self._known(cls)
        unknown = [name for name in fields if name not in info.by_name]
        if unknown or not fields:
            raise PipelineError(f"{info.name} has no field {unknown[0]!r}" if unknown else "name the fields",
                                hint=f"it has {', '.join(info.by_name)}")
        names = ", ".join(quoted(info.by_name[name].stored) for name in fields)
        given = " AND ".join(f"{quoted(info.by_name[name].stored)} IS NOT NULL" for name in fields)
        self.expect(f"{' and '.join(fields)} of {info.name} are unique",
                    f"SELECT {names}, count(*) AS times FROM {quoted(info.name)} WHERE {given} "
                    f"GROUP BY {names} HAVING count(*) > 1")

    # running
    def resolved(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """All parameters of a run. Raises `PipelineError` for one that the pipeline does not have."""
        asked = {name.partition(".")[0].partition("[")[0] for source in self.sources.values() if source.path
                 for _, name, *_ in _fields(source.path) if name}
        known = sorted({*self.parameters, *asked})
        for name in given or {}:
            if name not in known:
                near = get_close_matches(name, known, n=1, cutoff=0.5)
                has = f"it has {', '.join(known)}" if known else "it has none: no path of a source has {NAME} in it"
                raise PipelineError(f"the pipeline {self.name!r} has no parameter {name!r}",
                                    hint=f"did you mean {near[0]!r}? {has}" if near else has)
        return {**self.parameters, **(given or {})}

    def check(self, parameters: Mapping[str, str] | None = None) -> None:
        """Raise `PipelineError` for a pipeline that loads nothing and for parameters that it does not have,
        `SourceError` for a path that asks for one that is missing."""
        if not self.targets:
            raise PipelineError(f"the pipeline {self.name!r} loads nothing", hint="call pipeline.load(…)")
        given = self.resolved(parameters)
        for target in self.targets:
            target.source.located(self.folder, given)

    def run(
        self, url: str, *, spark: SparkSession | None = None, branch: str | None = None, dry_run: bool = False,
        audit: bool = False, graph: bool = False, parameters: Mapping[str, str] | None = None,
        progress: Progress | None = None, max_vanished: Limit | None = None,
    ) -> Report:  # fmt: skip
        """Read, validate, reconcile, stage, check expectations, and publish one commit, or nothing.

        Where there is no store yet, one is started: a typed store, or with `graph` a graph. With `audit` a run on a
        graph or on a typed store with branches publishes to a branch of its own, which is merged once expectations hold
        there. `max_vanished` stands for that of every load that has one. Running it again with the same input makes no
        commit. Raises `SourceError`, `TooManyRejectedError`,
        `TooManyVanishedError`, `ExpectationError`, `LiveRelationsError` if relations lead to rows that are to be
        deleted, `LayoutLacksError` if the store keeps no deletions or branches, and `Conflict` if others keep
        committing; then nothing was published, and the report that is kept beside the store says why.
        """
        from ontolake.spark.pipeline.run import PipelineRun

        return PipelineRun(self, url, branch=branch, dry_run=dry_run, audit=audit, graph=graph, parameters=parameters,
                           progress=progress, max_vanished=max_vanished).go(spark)


def optional(pipeline: Pipeline, source: Source) -> list[tuple[str, str]]:
    """The columns of a source that targets take if there are any, and else a default or nothing: the two names that
    each may have."""
    return [(column.stored, column.name) for target in pipeline.targets if target.source is source
            for column in target.info.columns if column.default is not UNSET
            and not {column.name, column.stored} & target.columns.keys()]  # fmt: skip


def unused(pipeline: Pipeline, source: Source, columns: Sequence[str]) -> list[str]:
    """The columns of a source that no target asks for."""
    asked: set[str] = set()
    for target in pipeline.targets:
        if target.source is source:
            asked |= {name for column in target.info.all_columns for name in (column.stored, column.name)}
            for sql in (*target.columns.values(), target.where or ""):
                asked |= set(_WORDS.findall(sql)) | set(_QUOTED.findall(sql))
    return [name for name in columns if name not in asked]


_WORDS, _QUOTED = re.compile(r"\w+"), re.compile(r"`([^`]+)`")


def _fields(path: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """The parts of a path; none if it is malformed, which reading it tells."""
    try:
        return list(Formatter().parse(path))
    except ValueError:
        return []


def _policy(dangling: Any) -> DanglingPolicy:
    if dangling not in get_args(DanglingPolicy):
        raise PipelineError(f"dangling is {', '.join(map(repr, get_args(DanglingPolicy)))}, not {dangling!r}")
    return dangling  # type: ignore[no-any-return]


def _vanishing(policy: Any) -> VanishedPolicy | None:
    if policy is None or isinstance(policy, bool):
        return "keep" if policy else None
    if policy not in VANISHED:
        raise PipelineError(f"vanished is {', '.join(map(repr, VANISHED))}, not {policy!r}")
    return policy  # type: ignore[no-any-return]


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
