"""All that can be read from a typed store, as values that compare equal as long as no answer has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ontolake.errors import OntolakeError
from ontolake.model import Relation, type_info
from ontolake.ontology import Session, count
from ontolake.ontology.moving.exports import lines


def everything(session: Session, types: Sequence[Any], until: int | None = None) -> dict[str, Any]:
    """Every kind of read of these types up to the commit `until`: the past at every commit, and at some history,
    changes, differences, aggregates, traversals and exports. A read that is refused is an answer too."""
    head = session.repository.head() if until is None else until
    found: dict[str, Any] = {}
    for cls in types:
        found |= {f"{cls.__name__} {what}": told for what, told in _of_type(session, cls, head, until is None)}
    infos = [type_info(cls) for cls in types]
    for at in _some(head):
        found[f"export at {at}"] = _answer(lambda at=at: sorted(lines(session.repository, infos, as_of=at)))
        found[f"difference to {at}"] = _answer(lambda at=at: _changes(
            session.diff(session.snapshot(at), session.snapshot(head)), types))  # fmt: skip
    found["changes"] = _answer(lambda: _changes(session.changes(0, head), types))
    return found


def _of_type(session: Session, cls: Any, head: int, now: bool) -> Iterable[tuple[str, Any]]:
    query = _asked(session, cls)
    key = getattr(cls, type_info(cls).keys[0].name)
    yield "history", _answer(lambda: _states(query.as_of(head).with_history().collect()))
    for at in range(head + 1):
        yield f"at {at}", _answer(lambda at=at: _states(query.as_of(at).collect()))
    for at in _some(head):
        then = query.as_of(at)
        yield f"groups at {at}", _answer(lambda then=then: sorted(map(str, then.group_by(key).agg(n=count()))))
        yield f"since {at}", _answer(lambda at=at: _states(query.as_of(head).history_since(at).collect()))
        if issubclass(cls, Relation):
            yield f"paths at {at}", _answer(lambda at=at: _paths(session, cls, at))
    if now:
        yield "now", _answer(lambda: (_states(query.collect()), query.count()))


def _some(head: int) -> list[int]:
    return sorted({0, head // 3, 2 * head // 3, head})


def _answer(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OntolakeError as error:
        return type(error).__name__


def _asked(session: Session, cls: Any) -> Any:
    start: Any = session.query()
    return start.relations(cls) if issubclass(cls, Relation) else start.entities(cls)


def _states(rows: Iterable[Any]) -> list[str]:
    return sorted(f"{row.meta().commit_id} {row!r}" for row in rows)


def _changes(changes: Iterable[Any], types: Sequence[Any]) -> list[str]:
    tables = {f"{type_info(cls).kind}/{cls.__name__}" for cls in types}
    return sorted(f"{one.commit} {one.table} {one.key!r} {one.before!r} {one.after!r}" for one in changes
                  if one.table in tables)  # fmt: skip


def _paths(session: Session, link: Any, at: int) -> list[str]:
    """Paths over a relation, from its left end and from its right one."""
    info = type_info(link)
    return sorted(f"{path.source!r} {path.relations!r} {path.target!r}" for end in {info.left, info.right}
                  for path in _asked(session, end).as_of(at).via(link).collect())
