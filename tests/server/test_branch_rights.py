"""Which branch a reference needs the right to: tags, ids, times and `~` open no way around the patterns of a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ontolake import sql
from ontolake.documents import Set, open_space
from ontolake.errors import OntolakeError
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.server.handles import ServedStore
from ontolake.server.rights import ForbiddenError, Principal, TokenScope, Touch, check

TRIES = Principal("tries", TokenScope.READ, ("*",), ("try/*",))


class Thing(Entity):
    """A thing that is stored."""

    id: Field[str] = Field(primary_key=True)


class Past(NamedTuple):
    """A store with one commit that both branches have, one that only `main` has (tagged `secret`), and one that only
    `try/a` has (tagged `mine`)."""

    served: ServedStore
    shared: Any
    only_main: Any
    only_try: Any


def _typed(folder: Path) -> Past:
    url = str(folder / "typed.db")

    def put(id: str, branch: str) -> Any:
        with Session(url, entity_types=[Thing], branch=branch) as session:
            session.ensure(Thing(id=id))
        with Session(url, branch=branch) as session:
            return next(iter(session.commits())).id

    shared = put("1", "main")
    with Session(url) as session:
        session.branches.create("try/a")
    only_main, only_try = put("2", "main"), put("3", "try/a")
    with Session(url) as session:
        session.tags.create("secret", "main")
        session.tags.create("mine", "try/a")
    return Past(ServedStore("s", url), shared, only_main, only_try)


def _documents(folder: Path) -> Past:
    with open_space(f"{folder}/", "notes") as space:
        def put(id: str, branch: str) -> int:
            return space.transact(*space.next_request(), [Set(id, {"value": 1})], branch=branch).seq

        shared = put("a", "")
        space.branches.create("try/a")
        only_main, only_try = put("b", ""), put("c", "try/a")
        space.tags.create("secret", "main")
        space.tags.create("mine", "try/a")
    return Past(ServedStore("s", str(folder / "notes.sqlite")), shared, only_main, only_try)


def _graph(folder: Path) -> Past:
    with Graph.init(f"{folder}/graph", [Thing]) as graph:
        def put(id: str, branch: str) -> Any:
            graph.load(Thing, [{"id": id}], branch=branch)
            return next(iter(graph.commits(branch=branch))).id

        shared = put("1", "main")
        graph.branches.create("try/a")
        only_main, only_try = put("2", "main"), put("3", "try/a")
        graph.tags.create("secret", "main")
        graph.tags.create("mine", "try/a")
    return Past(ServedStore("s", f"{folder}/graph/"), shared, only_main, only_try)


def _tables(folder: Path) -> Past:
    url = str(folder / "shop.db")
    with sql.open_database(url) as main:
        main.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        main.branches.create("try/a")
        shared = next(iter(main.commits())).id
        main.execute("INSERT INTO t VALUES (1)")
        with sql.open_database(url, branch="try/a") as other:
            other.execute("INSERT INTO t VALUES (2)")
        main.tags.create("secret", "main")
        main.tags.create("mine", "try/a")
        return Past(ServedStore("s", url), shared, next(iter(main.commits())).id, None)


@pytest.fixture(scope="module", params=[_typed, _documents, _graph, _tables],
                ids=["typed", "documents", "graph", "sql"])
def past(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    found: Past = request.param(tmp_path_factory.mktemp("store"))
    yield found
    found.served.close()


def _may_read(past: Past, ref: str | None) -> bool:
    try:
        check(TRIES, "s", Touch(TokenScope.READ, past.served.branch_of(ref, TRIES)))
    except (ForbiddenError, OntolakeError):
        return False
    return True


def test_what_only_main_has_cannot_be_read_by_any_name(past: Past) -> None:
    commit = past.only_main
    for ref in (None, "main", f"main@{commit}", f"@{commit}", str(commit), "secret", "main~0", "secret~0",
                f"@{commit}~0", f"{commit}~0", "@2099-01-01", "main@2099-01-01"):  # fmt: skip
        assert not _may_read(past, ref), ref


def test_own_branches_are_read_by_every_name(past: Past) -> None:
    for ref in ("try/a", "try/a~1", f"try/a@{past.shared}", "try/a@2099-01-01", "mine", "mine~1"):
        assert _may_read(past, ref), ref
    if past.only_try is not None:
        assert _may_read(past, f"@{past.only_try}")
        assert _may_read(past, f"@{past.only_try}~1")


def test_history_from_before_a_branch_left_main_is_shared(past: Past) -> None:
    numbered_by_branch = past.only_try is None  # versions of SQL tables: there @1 is main's
    assert _may_read(past, f"@{past.shared}") is not numbered_by_branch
    assert not _may_read(past, f"main@{past.shared}")


def test_names_that_nothing_has_are_refused_like_those_of_others(past: Past) -> None:
    assert not _may_read(past, "nothing")
    assert not _may_read(past, "@999999")


def test_who_sees_every_branch_reads_everything(past: Past) -> None:
    everyone = Principal("all", TokenScope.READ)
    for ref in (None, "main", "try/a", "secret", f"@{past.only_main}", "@2099-01-01", "nothing"):
        check(everyone, "s", Touch(TokenScope.READ, past.served.branch_of(ref, everyone)))
