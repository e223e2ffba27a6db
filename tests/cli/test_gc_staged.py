"""`onto gc` removes what was staged beside a store and never published, once whoever staged it must be gone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake import parallel
from ontolake.documents import open_space
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.sql import open_database

DAY = 24 * 3600


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    document: Field[str]


LAYOUTS = {
    "sqlite": ("{}/shop.db", "entity/Thing"), "pages": ("file://{}/pages.db", "entity/Thing"),
    "objects": ("file://{}/lake", "entity/Thing"), "graph": ("file://{}/graph", "node/Thing"),
    "documents": ("{}/orders.sqlite", "documents"), "sql": ("{}/tables.db", "main.public.thing"),
    "sql on pages": ("file://{}/tables.db", "main.public.thing"),
}  # fmt: skip


@pytest.fixture(params=LAYOUTS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    where, table = LAYOUTS[request.param]
    url = where.format(tmp_path)
    if request.param == "graph":
        Graph.init(url, [Thing]).close()
    elif request.param == "documents":
        open_space(f"{tmp_path}/", "orders").close()
    elif "thing" in table:
        with open_database(url) as database:
            database.execute("CREATE TABLE thing (id TEXT PRIMARY KEY, document TEXT)")
    else:
        start(url)
    return url, table


def start(url: str) -> None:
    with Session(url, entity_types=[Thing]) as session:
        session.ensure(Thing(id="first", document="{}"))


def stage(url: str, table: str, job: str, id: str) -> parallel.Fragment:
    found = parallel.stage(url, table, [pa.record_batch({"id": [id], "document": ['{"n": 1}']})], job=job)
    assert found is not None
    return found


def path(fragment: parallel.Fragment) -> Path:
    return Path(fragment.place.removeprefix("file://"), fragment.key)


def grow_old(fragment: parallel.Fragment, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path(fragment), (then, then))


def test_what_no_publish_took_goes_and_what_may_still_be_published_stays(onto: Any, place: tuple[str, str]) -> None:
    url, table = place
    left = [stage(url, table, "killed", "a"), stage(url, table, "killed", "b")]
    slow = [stage(url, table, "slow", "c"), stage(url, table, "slow", "d")]
    for one in (*left, slow[0]):
        grow_old(one, DAY + 60)
    grow_old(slow[1], DAY - 60)  # it has written something within a day: it may be at work
    preview = onto("gc", url, "--json").document
    assert preview["would_remove"]["staged"] == 2
    assert preview["would_remove"]["items"] >= 2
    assert "2 were staged by jobs that are over" in onto("gc", url).out
    assert onto("gc", url, "--token", "wrong").code == 7
    assert all(path(one).exists() for one in left), "a preview removes nothing"
    assert onto("gc", url, "--token", preview["token"], "--json").document["removed"]["staged"] == 2
    assert [path(one).exists() for one in (*left, *slow)] == [False, False, True, True]
    with parallel.open_parallel(url, write=True) as store:
        head = store.head()
        assert store.publish(slow).written == {table: 2}
        assert store.head() == head + 1
    assert onto("verify", url).code == 0
    assert onto("gc", url, "--json").document["would_remove"]["staged"] == 0


def test_what_was_removed_meanwhile_is_not_published_in_part(onto: Any, place: tuple[str, str]) -> None:
    url, table = place
    fragments = [stage(url, table, "slow", "a"), stage(url, table, "slow", "b")]
    for one in fragments:
        grow_old(one, DAY + 60)
    token = onto("gc", url, "--json").document["token"]
    late = stage(url, table, "slow", "c")  # it goes on after all, so the token no longer fits
    assert onto("gc", url, "--token", token).code == 7
    grow_old(late, DAY + 60)
    assert onto("gc", url, "--token", onto("gc", url, "--json").document["token"]).code == 0
    again = stage(url, table, "slow", "d")
    with parallel.open_parallel(url, write=True) as store:
        head = store.head()
        with pytest.raises(LookupError):
            store.publish([again, *fragments])
        assert store.head() == head


def test_a_page_store_is_compacted_as_well(onto: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/pages.db"
    start(url)
    assert onto("gc", url, "--json").document.keys() >= {"freed", "pitr_floor", "bytes_before", "bytes_after", "token"}
    assert "PITR floor" in onto("gc", url).out
