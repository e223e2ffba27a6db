"""Stores are served under names from their URLs; a folder of spaces serves each space."""

from pathlib import Path

import pytest

from ontolake.documents import Set, open_space
from ontolake.errors import Invalid, NotFound
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.server.config import named_urls


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for space in ("notes", "plans"):
        with open_space(f"{tmp_path}/spaces/", space) as opened:
            opened.transact(*opened.next_request(), [Set("a", {"n": 1})])
    for store in ("shop.db", "lake/"):
        with Session(f"{tmp_path}/{store}", entity_types=[Thing]) as session:
            session.ensure(Thing(id="a"))
    return tmp_path


def test_names_are_the_last_part_without_a_suffix(folder: Path) -> None:
    given = [f"{folder}/shop.db", f"{folder}/lake/"]
    assert named_urls(given) == {"shop": given[0], "lake": given[1]}


def test_a_folder_of_spaces_serves_each_space(folder: Path) -> None:
    assert named_urls([f"{folder}/spaces/"]) == {
        name: f"{folder}/spaces/{name}.sqlite" for name in ("notes", "plans")}


def test_two_stores_of_one_name_are_refused(folder: Path) -> None:
    with pytest.raises(Invalid, match="'shop'"):
        named_urls([f"{folder}/shop.db", f"{folder}/shop.db"])


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store"):
        named_urls([str(tmp_path)])
