"""`unique=True`: no two living rows have one value, on every branch, and merges say so."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.history import ConflictKind, MergeConflictError, Resolution
from ontolake.model import Entity, Field, Relation, SchemaValidationError, schema_hash, schema_of
from ontolake.model.restoration import restore
from ontolake.model.source import python_source
from ontolake.model.types import type_info
from ontolake.ontology import LayoutLacksError, Session, UniqueFieldError
from ontolake.ontology.repository.sqlite.uniqueness import clash_statements
from ontolake.ontology.verification import verify


class User(Entity):
    id: Field[str] = Field(primary_key=True)
    email: Field[str | None] = Field(default=None, unique=True)
    number: Field[int | None] = Field(default=None, unique=True)
    score: Field[float | None] = Field(default=None, unique=True)
    name: Field[str] = Field(default="")


class Sits(Relation[User, User]):
    at: Field[str] = Field(instance_key=True)
    seat: Field[int] = Field(unique=True)


def opened(url: str, branch: str = "main") -> Session:
    return Session(url, entity_types=[User], relation_types=[Sits], engine_version="v3", branch=branch)


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    found = opened(url)
    yield found
    found.discard()
    found.close()


def test_a_commit_that_gives_a_value_to_two_rows_is_refused_and_changes_nothing(session: Session) -> None:
    session.ensure([User(id="a", email="x@y"), User(id="b"), User(id="c")])
    session.commit()
    session.ensure([User(id="d", name="new"), User(id="b", email="x@y")])
    with pytest.raises(UniqueFieldError) as caught:
        session.commit()
    error = caught.value
    assert (error.type_name, error.field, error.value, sorted(error.keys)) == ("User", "email", "x@y", ["a", "b"])
    assert (session.repository.head(), session.query().entities(User).count()) == (1, 3)
    session.discard()
    for one, two in (({"number": 5}, {"number": 5}), ({"score": 0.0}, {"score": -0.0}),
                     ({"score": math.nan}, {"score": math.nan})):  # fmt: skip
        session.ensure([User(id="e", **one), User(id="f", **two)])  # type: ignore[arg-type]
        with pytest.raises(UniqueFieldError):
            session.commit()
        session.discard()
    session.ensure(User(id="e", score=0.0))
    session.commit()
    session.ensure(User(id="f", score=-0.0))
    with pytest.raises(UniqueFieldError, match="score"):
        session.commit()
    session.discard()


def test_values_move_within_one_commit_and_are_free_again_when_their_row_is_gone(session: Session) -> None:
    session.ensure([User(id="a", email="1"), User(id="b", email="2")])
    session.commit()
    session.ensure([User(id="a", email="2"), User(id="b", email="1")])
    assert session.commit() == 2
    session.delete(User, "a")
    session.ensure(User(id="c", email="2"))
    assert session.commit() == 3
    session.ensure(User(id="a", email="2"))
    with pytest.raises(UniqueFieldError):
        session.commit()
    session.discard()
    session.ensure_all(User, [User(id="z", email="1"), User(id="y", email="2")])
    assert session.commit() == 4


def test_relations_have_unique_fields_too(session: Session) -> None:
    session.ensure([User(id="a"), Sits(left_key="a", right_key="a", at="mo", seat=1)])
    session.commit()
    session.ensure(Sits(left_key="a", right_key="a", at="tu", seat=1))
    with pytest.raises(UniqueFieldError) as caught:
        session.commit()
    assert sorted(caught.value.keys) == [("a", "a", "mo"), ("a", "a", "tu")]


@pytest.mark.parametrize("seed", slow_after(1, range(6)))
def test_commits_are_refused_just_when_an_oracle_says_so(native: str, seed: int) -> None:
    chance, url = random.Random(seed), native
    state: dict[str, dict[str, tuple[Any, Any]]] = {"main": {}}
    sessions = {"main": opened(url)}
    refused = 0
    for step in range(60):
        branch = chance.choice(list(state))
        if step in (15, 30):
            sessions[branch].branches.create(f"b{step}", at=branch)
            state[f"b{step}"] = dict(state[branch])
            sessions[f"b{step}"] = opened(url, f"b{step}")
            continue
        after, session = dict(state[branch]), sessions[branch]
        for _ in range(chance.choice([1, 2, 3, 30])):
            key = f"k{chance.randrange(12)}"
            if chance.random() < 0.3:
                session.delete(User, key)
                after.pop(key, None)
            else:
                row = (chance.choice([None, *"abcdefghijklmn"]), chance.choice([None, *range(-9, 20)]))
                session.ensure(User(id=key, email=row[0], number=row[1]))
                after[key] = row
        clash = any(len(held := [row[place] for row in after.values() if row[place] is not None]) != len(set(held))
                    for place in (0, 1))
        if clash:
            refused += 1
            with pytest.raises(UniqueFieldError):
                session.commit()
            session.discard()
        else:
            session.commit()
            state[branch] = after
        found = {one.id: (one.email, one.number) for one in session.query().entities(User).collect()}
        assert found == state[branch]
    assert 5 < refused < 55
    for session in sessions.values():
        session.close()


@pytest.fixture
def forked(session: Session, url: str) -> Session:
    """`main` and `try` have each given the value x to another row; both are based on a third."""
    session.ensure([User(id="a", email="a"), User(id="b", email="b"), User(id="t")])
    session.commit()
    session.branches.create("try")
    with opened(url, "try") as other:
        other.ensure([User(id="b", email="x", name="theirs"), User(id="n", email="free"), User(id="t", name="t")])
        other.commit()
    session.ensure([User(id="a", email="x", name="ours")])
    session.commit()
    return session


def emails(session: Session) -> dict[str, Any]:
    return {one.id: one.email for one in session.query().entities(User).collect()}


def test_a_merge_whose_rows_would_clash_is_a_conflict(forked: Session) -> None:
    with pytest.raises(MergeConflictError) as caught:
        forked.merge("try")
    (conflict,) = caught.value.conflicts
    assert (conflict.table, conflict.key, conflict.kind, conflict.rows) == (
        "entity/User", "b", ConflictKind.UNIQUE, (("entity/User", "a"),))
    assert "email 'x'" in conflict.detail
    assert (conflict.ours["email"], conflict.theirs["email"]) == ("b", "x")
    assert emails(forked) == {"a": "x", "b": "b", "t": None}
    assert [one.kind for one in forked.merge("try", dry_run=True).conflicts] == [ConflictKind.UNIQUE]


@pytest.mark.parametrize(("how", "wanted"), [
    ({"strategy": "ours"}, {"a": "x", "b": "b"}),
    ({"strategy": "theirs"}, {"a": "a", "b": "x"}),
    ({"strategy": {"entity/User": "theirs"}}, {"a": "a", "b": "x"}),
    ({"resolutions": [Resolution("entity/User", "b", take="theirs")]}, {"a": "a", "b": "x"}),
    ({"resolutions": [Resolution("entity/User", "a", take="ours")]}, {"a": "x", "b": "b"}),
    ({"strategy": lambda conflict: "ours"}, {"a": "x", "b": "b"}),
])  # fmt: skip
def test_a_side_says_whose_rows_stay(forked: Session, how: dict[str, Any], wanted: dict[str, Any]) -> None:
    result = forked.merge("try", **how)
    assert emails(forked) == {**wanted, "n": "free", "t": None}
    assert forked.get(User, "t").name == "t"  # type: ignore[union-attr]
    assert (result.tables["entity/User"].inserted, result.tables["entity/User"].deleted) == (1, 0)
    assert list(verify(forked.repository)) == []


def test_rows_that_move_a_value_on_both_sides_merge(session: Session, url: str) -> None:
    session.ensure([User(id="a", email="1"), User(id="b", email="2")])
    session.commit()
    session.branches.create("try")
    with opened(url, "try") as other:
        other.ensure([User(id="a", email="2"), User(id="b", email="1")])
        other.commit()
    session.ensure(User(id="c", email="3"))
    session.commit()
    session.merge("try")
    assert emails(session) == {"a": "2", "b": "1", "c": "3"}
    session.revert(session.repository.head())
    assert emails(session) == {"a": "1", "b": "2", "c": "3"}


def test_reverting_a_commit_whose_old_value_is_taken_is_a_conflict(session: Session) -> None:
    session.ensure(User(id="a", email="1"))
    session.commit()
    session.ensure(User(id="a", email="2"))
    session.commit()
    session.ensure(User(id="b", email="1"))
    session.commit()
    with pytest.raises(MergeConflictError) as caught:
        session.revert(2)
    assert [one.kind for one in caught.value.conflicts] == [ConflictKind.UNIQUE]


def test_a_migration_that_makes_a_field_unique_looks_at_the_stored_rows(url: str) -> None:
    def declared(unique: bool) -> Any:
        body = {"__module__": __name__, "__annotations__": {"id": Field[str], "name": Field[str]},
                "id": Field(primary_key=True), "name": Field(unique=unique)}  # fmt: skip
        return type(Entity)("Thing", (Entity,), body)

    plain, strict = declared(False), declared(True)
    with Session(url, entity_types=[plain], engine_version="v3") as session:
        session.ensure([plain(id="a", name="x"), plain(id="b", name="x")])
    with Session(url, entity_types=[strict]) as session:
        preview: Any = session.migrate(upgraders={})
        assert str(preview.types[0].diff) == "Thing: unique fields none → name"
        with pytest.raises(UniqueFieldError):
            session.migrate(dry_run=False, token=preview.token, upgraders={})
        assert session.repository.head() == 1
    with Session(url, entity_types=[plain]) as session:
        session.ensure(plain(id="b", name="y"))
    with Session(url, entity_types=[strict]) as session:
        session.migrate(dry_run=False, force=True, upgraders={})
        session.ensure(strict(id="c", name="x"))
        with pytest.raises(UniqueFieldError):
            session.commit()
        session.discard()
    with Session(url, entity_types=[plain]) as session:
        session.migrate(dry_run=False, force=True, upgraders={})
        session.ensure(plain(id="c", name="x"))
        assert session.commit() == 5


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_branch_that_makes_a_field_unique_meets_rows_of_the_target(native: str, side: str) -> None:
    def declared(unique: bool) -> Any:
        body = {"__module__": __name__, "__annotations__": {"id": Field[str], "name": Field[str]},
                "id": Field(primary_key=True), "name": Field(unique=unique)}  # fmt: skip
        return type(Entity)("Thing", (Entity,), body)

    plain, strict = declared(False), declared(True)
    with Session(native, entity_types=[plain], engine_version="v3") as main:
        main.ensure([plain(id="a", name="x"), plain(id="b", name="y"), plain(id="c", name="z")])
        main.commit()
        main.branches.create("try")
        with Session(native, entity_types=[strict], branch="try") as other:
            other.migrate(dry_run=False, force=True, upgraders={})
            other.ensure(strict(id="a", name="new"))
        main.ensure(plain(id="b", name="new"))
        main.commit()
    with Session(native, entity_types=[strict]) as main:
        with pytest.raises(MergeConflictError) as caught:
            main.merge("try")
        assert [one.kind for one in caught.value.conflicts] == [ConflictKind.UNIQUE]
        main.merge("try", strategy=side)
        found = {one.id: one.name for one in main.query().entities(strict).collect()}  # type: ignore[attr-defined]
        assert found == {"c": "z", **({"a": "x", "b": "new"} if side == "ours" else {"a": "new", "b": "y"})}
        assert list(verify(main.repository)) == []


def test_engines_that_look_after_no_unique_fields_say_so(tmp_path: Path) -> None:
    for engine, url in (("v1", str(tmp_path / "1.db")), ("v2", str(tmp_path / "2.db")), ("v2", "memory://unique-fields")):
        with pytest.raises(LayoutLacksError, match=r"unique fields such as User.email .*onto convert"):
            Session(url, entity_types=[User], engine_version=engine)


def test_what_a_schema_says_of_unique_fields(url: str) -> None:
    assert schema_of(User)["unique"] == ["email", "number", "score"]
    restored = restore([schema_of(User)])["entity", "User"]
    assert schema_hash(schema_of(restored)) == schema_hash(schema_of(User))
    scope: dict[str, Any] = {}
    exec(python_source([schema_of(User)], "x"), scope)
    assert schema_of(scope["User"]) == schema_of(User)

    class Plain(Entity):
        id: Field[str] = Field(primary_key=True)

    assert "unique" not in schema_of(Plain)
    from decimal import Decimal

    for annotation, marked in ((list[str], {}), (Decimal, {}), (str, {"primary_key": True})):
        with pytest.raises(SchemaValidationError, match="unique"):
            type_info(type(Entity)("Wrong", (Entity,), {
                "__annotations__": {"id": Field[str], "f": Field[annotation]}, "__module__": __name__,  # type: ignore[valid-type]
                **({} if marked else {"id": Field(primary_key=True)}), "f": Field(unique=True, **marked)}))


def test_a_check_reads_rows_of_the_values_that_were_written_and_no_more(session: Session) -> None:
    session.ensure(User(id=str(n), email=f"e{n}") for n in range(200))
    session.commit()
    for n in range(50):
        session.ensure(User(id="7", email="e7", name=str(n)))
        session.commit()
    repository: Any = session.repository
    info = type_info(User)
    statements = clash_statements(repository, info, repository.layout_of(info).table_name, info.unique[0])
    steps = [row[3] for sql in statements for row in repository.db.execute(f"EXPLAIN QUERY PLAN {sql}", (51,))]
    assert not [step for step in steps if step.startswith("SCAN")]
    assert len([step for step in steps if "unique_email (email=? AND entity_key" in step]) == 2, steps


@pytest.mark.parametrize("place", ["store.db", "lake"])
def test_verify_names_values_that_two_rows_of_a_branch_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:  # fmt: skip
    url = str(tmp_path / place) if place == "store.db" else f"file://{tmp_path}/{place}"
    with opened(url) as session:
        session.ensure([User(id="a", email="x@y", score=1.5), User(id="b"), User(id="c")])
        session.commit()
        session.branches.create("try")
    for module in ("ontolake.ontology.repository.sqlite.v3", "ontolake.ontology.repository.objects.transaction"):
        monkeypatch.setattr(f"{module}.check_unique", lambda *given: None)  # as an older version with a bug would
    with opened(url, "try") as session:
        session.ensure([User(id="b", email="x@y"), User(id="c", email="z@y"), User(id="a", email="z@y", score=1.5)])
        session.commit()
        session.ensure(User(id="b", email="z@y"))
        session.commit()
        assert [(one.where, one.what) for one in verify(session.repository)] == [
            ("entity User, branch try", "email is unique, and 3 rows have 'z@y'")]
        session.delete(User, ["a", "b"])
        session.commit()
        assert not list(verify(session.repository))
