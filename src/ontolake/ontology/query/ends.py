"""The entities at the ends of relations: loaded when one is asked for, for all relations of a result at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.model.entity import ENDS
from ontolake.model.filters import FieldRef, ValueRef, narrowed
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import DanglingRelationError, EndUnavailableError
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Repository

if TYPE_CHECKING:
    from ontolake.ontology.query.question import Past

class EndLoader:
    """Gives relations of one result their entities, as of the moment of that result."""

    __slots__ = ("_at", "_found", "_keys", "_past", "_repository")

    def __init__(
        self, repository: Repository, at: int, past: Past | None, left: list[Any], right: list[Any]
    ) -> None:  # fmt: skip
        """Take the encoded keys of all relations that are to be loaded together."""
        self._repository = repository
        self._at = at
        self._past = past
        self._keys = {"left": left, "right": right}
        self._found: dict[str, dict[Any, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """What is sent to another process is far from its store."""
        return DetachedEnds, ()

    def __deepcopy__(self, memo: Any) -> EndLoader:
        return self

    def end(self, relation: Any, side: str) -> Any:
        """The entity at one end. Raises `DanglingRelationError` if there is none, and what queries raise."""
        info = type_info(type(relation))
        end = type_info(info.left if side == "left" else info.right)
        column = info.by_name[f"{side}_key"]
        key = column.encode(relation.__dict__[column.name], info.name)
        known = self._found.get(side)
        if known is None:
            known = self._found[side] = self._load(end, list(dict.fromkeys(self._keys.pop(side))))
        if key not in known:  # another one was set meanwhile
            known.update(self._load(end, [key]))
        found = known[key]
        if found is None:
            raise DanglingRelationError(f"there is no {end.name} {column.decode(key)!r} at commit {self._at}",
                                        type_name=info.name, field=column.name,
                                        key=tuple(relation.__dict__[one.name] for one in info.keys))  # fmt: skip
        return found

    def _load(self, end: TypeInfo, keys: list[Any]) -> dict[Any, Any]:
        """Entities by their encoded keys; None for a key that nothing has."""
        from ontolake.ontology.query.question import question_of  # which hands them out

        (column,) = end.keys
        wanted = FieldRef[Any](ValueRef(end.cls, column.name)).in_([column.decode(key) for key in keys])
        shape, given = narrowed(None, (), (wanted,))
        plan, values = Plan(end.cls, where=shape, as_of=True), Values(where=given, as_of=self._at)
        found: dict[Any, Any] = dict.fromkeys(keys)
        with question_of(self._repository, plan, values, self._past) as question:
            for obj in question.objects(question.plan.root, question.source.run(question.plan, question.values)):
                (there,) = type_info(type(obj)).keys
                found[there.encode(obj.__dict__[there.name], end.name)] = obj
        return found


class PathEnds(NamedTuple):
    """Gives a relation on a path the entities beside it."""

    left: Any
    right: Any

    def __deepcopy__(self, memo: Any) -> PathEnds:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return DetachedEnds, ()

    def end(self, relation: Any, side: str) -> Any:
        """The entity at one end. Raises `EndUnavailableError` if the relation got another key meanwhile."""
        found = self.left if side == "left" else self.right
        (key,) = type_info(type(found)).keys
        if found.__dict__[key.name] != relation.__dict__[f"{side}_key"]:
            raise EndUnavailableError(type(relation).__name__, side)
        return found


class DetachedEnds:
    """Stands for `EndLoader` in a copy that went to another process."""

    __slots__ = ()

    def end(self, relation: Any, side: str) -> Any:
        raise EndUnavailableError(type(relation).__name__, side)


def give_ends(relations: Iterable[Any], left: Iterable[Any], right: Iterable[Any]) -> None:
    """Give relations on paths the entities beside them."""
    for relation, one, two in zip(relations, left, right, strict=True):
        relation.__dict__[ENDS] = PathEnds(one, two)
