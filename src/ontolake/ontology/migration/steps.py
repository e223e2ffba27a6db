"""The steps from one version of a type to another: which versions lie between, and whose upgraders lead from each on.

The commit that makes a version the current one says so in its metadata where version numbers do not: on a branch the
number that follows may belong to another branch, and a merge brings a version with all steps that led there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ontolake.history.metadata import MIGRATED_TYPES
from ontolake.model.columns import Column
from ontolake.model.types import Kind
from ontolake.ontology.errors import MissingUpgraderError
from ontolake.ontology.migration.lifts import Lift, lift_between
from ontolake.ontology.migration.past import Era
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.repository.protocol import Repository, SchemaVersion

STEPS = "steps"
"""The key, in what the metadata of a commit says of a type, of the steps if version numbers do not tell them."""


class VersionStep(NamedTuple):
    """One migration of a type. `numbers` are the versions whose upgraders led there; none if no upgrader was needed.

    With `keeps_all` no field may be dropped without an upgrader: nobody has decided yet that it may.
    """

    old: SchemaVersion
    new: SchemaVersion
    numbers: Sequence[int]
    keeps_all: bool = False


def migrated_type(
    name: tuple[Kind, str], versions: tuple[int, int], rows: int, steps: Iterable[tuple[int, Iterable[int]]] = ()
) -> dict[str, Any]:  # fmt: skip
    """What the metadata of a commit says of a type that it migrated. Steps are versions and the upgraders to them."""
    told = [{"to_schema_version_id": version, "upgraded_from": [*numbers]} for version, numbers in steps]
    return {"type_kind": name[0], "type_name": name[1], "from_schema_version_id": versions[0],
            "to_schema_version_id": versions[1], "rows_rewritten": rows, **({STEPS: told} if told else {})}


def steps_along(repository: Repository, eras: Sequence[Era]) -> list[VersionStep]:
    """The steps between versions of a type that were current one after the other."""
    return [step for old, new in pairwise(eras) for step in _between(repository, old, new)]


def steps_to(
    repository: Repository, line: Sequence[Era], old: SchemaVersion, new: SchemaVersion
) -> list[VersionStep]:  # fmt: skip
    """The steps from a version to the last one of a line, `new`, from wherever the line had that schema.

    None if the schemas are the same. A version that the line never had takes one step, in which nothing may be lost.
    """
    if old.schema_hash == new.schema_hash:
        return []
    steps = steps_along(repository, line)
    for number, step in enumerate(steps):
        if step.old.schema_hash == old.schema_hash:
            return steps[number:]
    return [VersionStep(old, new, [old.schema_version_id], keeps_all=True)]


def _between(repository: Repository, old: Era, new: Era) -> list[VersionStep]:
    first, last = old.version, new.version
    plain = VersionStep(first, last, range(first.schema_version_id, last.schema_version_id))
    if len(plain.numbers) == 1:
        return [plain]
    told = _told(repository, last, new.since)
    if not told:
        return [plain]
    known = {one.schema_version_id: one for one in repository.every_version(last.type_kind, last.type_name)}
    versions = [first, *(known[one["to_schema_version_id"]] for one in told[:-1]), last]
    return [VersionStep(*pair, one["upgraded_from"]) for pair, one in zip(pairwise(versions), told, strict=True)]


def _told(repository: Repository, version: SchemaVersion, commit: int) -> Sequence[Any]:
    """The steps that a commit says it took to a version of a type."""
    for one in repository.commit(commit).metadata.get(MIGRATED_TYPES, ()):
        if (one["type_kind"], one["type_name"]) == (version.type_kind, version.type_name):
            found: Sequence[Any] = one.get(STEPS, ())
            return found
    return ()


def lifting(
    steps: Iterable[VersionStep], declared: Sequence[Column], upgraders: dict[tuple[str, int], Upgrader]
) -> list[Upgrader | Lift]:  # fmt: skip
    """What leads rows along steps: the upgraders, and lifts where there are none and none are needed.

    `declared` are the columns of the type as code has it. Raises `MissingUpgraderError`.
    """
    found: list[Upgrader | Lift] = []
    missing: list[tuple[str, int]] = []
    reasons: list[str] = []
    for old, new, numbers, keeps_all in steps:
        name = new.type_name
        wanted = numbers or [old.schema_version_id]
        given = [upgraders.get((name, number)) for number in wanted]
        # An upgrader from this version may lead to that of another branch: none was needed here.
        is_lifted = not numbers or not (any(given) or len(wanted) > 1)
        step = lift_between(old.schema, new.schema, declared) if is_lifted else None
        if isinstance(step, Lift):
            lost = [one.before for one in step.fields if one.what == "dropped"] if keeps_all else []
            if not lost:
                found.append(step)
                continue
            reasons.append(f"{name}: {', '.join(map(str, lost))} would be lost")
        elif step is not None:
            reasons += [f"{name}: {reason}" for reason in step.reasons]
        found += [one for one in given if one is not None]
        missing += [(name, number) for number, one in zip(wanted, given, strict=True) if one is None]
    if missing:
        raise MissingUpgraderError(missing, reasons)
    return found
