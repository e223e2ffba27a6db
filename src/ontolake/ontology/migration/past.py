"""The past by its own schemas: which version of a type was current at a commit, and classes to read its rows with."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ontolake.model.filters import Order, ValueRef, measure_with_refs, with_refs
from ontolake.model.restoration import restore
from ontolake.model.schema import canonical_json, schema_of
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.query.plan import Plan, PlanHop
from ontolake.ontology.repository.protocol import Repository, SchemaVersion

Name = tuple[Kind, str]


class Era(NamedTuple):
    """A version of a type and the commits at which it was the current one: from `since` to `until`, if that is over."""

    version: SchemaVersion
    since: int
    until: int | None


def eras(repository: Repository, kind: Kind, name: str) -> list[Era]:
    """The versions of a type in the order in which they were current. None of a type that is not known (any more).

    The first one counts from the beginning, before it had any rows.
    """
    if (kind, name) not in repository.schemas():
        return []
    since = repository.activations(kind, name)
    versions = repository.schema_versions(kind, name)
    # On a branch a merge may have brought a version of another branch that is older than what was there.
    first = versions[0].schema_version_id if versions else 0
    versions = sorted(versions, key=lambda one: since.get(one.schema_version_id, 0 if one.schema_version_id == first
                                                          else sys.maxsize))
    known = [(one, since.get(one.schema_version_id, 0) if number else 0) for number, one in enumerate(versions)
             if not number or one.schema_version_id in since]
    ends = [commit - 1 for _, commit in known[1:]]
    return [Era(version, commit, end) for (version, commit), end in zip(known, [*ends, None], strict=True)]


def era_at(repository: Repository, kind: Kind, name: str, commit: int) -> Era | None:
    """The version of a type that was current at a commit; None of a type that is not known (any more)."""
    there = repository.holding(commit)
    return next((era for era in reversed(eras(there, kind, name)) if era.since <= commit), None)


def types_at(
    repository: Repository, types: Iterable[TypeInfo], commit: int, *, apart: bool = False
) -> dict[Name, TypeInfo]:  # fmt: skip
    """Types, and the ends of relations among them, as the schemas of a commit have them.

    Where that is the current schema, and the class has it, it is the class itself. Others are restored from schemas.
    With `apart` the class itself stands for a type only if it has no other version, whose rows it could show too.
    """
    repository = repository.holding(commit)
    known = repository.schemas()
    wanted: dict[Name, tuple[int, str]] = {}
    given: dict[Name, Any] = {}
    for info in _with_ends(types):
        name = (info.kind, info.name)
        era = era_at(repository, *name, commit)
        own = era is None or (era.until is None and info.version is None
                              and info.schema_hash == known[name].schema_hash and not (apart and era.since))
        if era is None or own:
            given[name] = info.cls
        else:
            wanted[name] = (era.version.schema_version_id, canonical_json(era.version.schema))
    for name, cls in list(given.items()):
        ends = getattr(cls, "__ontolake_ends__", None) or ()
        if any(given.get(("entity", end.__name__)) is not end for end in ends):  # it must lead to those of its time
            version = known[name].schema_version_id if name in known else 0
            wanted[name] = (version, canonical_json(schema_of(cls)))
            del given[name]
    return dict(_restored(tuple(wanted.values()), tuple(given.items())))


def type_of(version: SchemaVersion) -> TypeInfo:
    """A class that reads the rows of one version of a type. The ends of a relation have nothing but keys."""
    found = _restored(((version.schema_version_id, canonical_json(version.schema)),), ())
    return found[version.type_kind, version.type_name]


def _with_ends(types: Iterable[TypeInfo]) -> list[TypeInfo]:
    found = {(info.kind, info.name): info for info in types}
    for info in list(found.values()):
        for end in (info.left, info.right) if info.kind == "relation" else ():
            found.setdefault(("entity", end.__name__), type_info(end))
    return list(found.values())


@lru_cache(maxsize=256)
def _restored(wanted: tuple[tuple[int, str], ...], given: tuple[tuple[Name, Any], ...]) -> Mapping[Name, TypeInfo]:
    """Classes of schemas, each with the version that it stands for. Made once, so that statements can be kept."""
    schemas = [(version, json.loads(text)) for version, text in wanted]
    classes = restore([schema for _, schema in schemas], dict(given))
    for version, schema in schemas:
        type_info(classes[schema["kind"], schema["name"]]).version = version
    return {name: type_info(cls) for name, cls in classes.items()}


class StoredPlan(NamedTuple):
    """A plan in the classes of a commit, and of these the ones that stand for a class of the caller as it is."""

    plan: Plan
    same: Mapping[Any, Any]


def plan_at(repository: Repository, plan: Plan, commit: int) -> StoredPlan:
    """The plan for rows as the schemas of a commit have them. Raises `QueryError` for a field that they lack."""
    asked = plan.types
    infos = types_at(repository, map(type_info, asked), commit, apart=plan.history)
    classes = {cls: infos[type_info(cls).kind, type_info(cls).name].cls for cls in asked}

    def moved(ref: ValueRef) -> ValueRef:
        owner = classes.get(ref.owner)
        if owner is None or owner is ref.owner:
            return ref
        return ref._replace(owner=owner, name=_field(ref, type_info(owner), commit))

    moved_plan = plan._replace(
        root=classes[plan.root], hops=tuple(PlanHop(classes[hop.relation], hop.forward) for hop in plan.hops),
        where=None if plan.where is None else with_refs(plan.where, moved),
        order=tuple(Order(moved(one.ref), one.descending) for one in plan.order),
        measures=tuple(measure_with_refs(one, moved) for one in plan.measures), groups=tuple(map(moved, plan.groups)),
        having=None if plan.having is None else with_refs(plan.having, moved),
    )  # fmt: skip
    same = {there: cls for cls, there in classes.items()
            if there is not cls and type_info(there).schema_hash == type_info(cls).schema_hash}
    return StoredPlan(moved_plan, same)


def _field(ref: ValueRef, info: TypeInfo, commit: int) -> str:
    """What the class of a commit calls a field that a query names. Raises `QueryError` if it has no such field."""
    then, now = info, type_info(ref.owner)
    if ref.side is not None:
        then, now = (type_info(one.left if ref.side == "left" else one.right) for one in (then, now))
    column = now.by_name.get(ref.name)
    if column is None:
        return ref.name  # which the engine refuses
    found = next((one.name for one in then.all_columns if one.stored == column.stored), None)
    if found is None:
        raise QueryError(f"{then.name} had no field {column.stored!r} at commit {commit}",
                         hint=f'it had {", ".join(one.stored for one in then.all_columns)}; '
                              'schema="current" reads its rows with the fields of today')
    return found


def outdated(repository: Repository, types: Iterable[TypeInfo], commit: int) -> Sequence[Era]:
    """The current versions of those types that had another one at a commit."""
    found = (eras(repository, info.kind, info.name) for info in types)
    return [one[-1] for one in found if len(one) > 1 and commit < one[-1].since]
