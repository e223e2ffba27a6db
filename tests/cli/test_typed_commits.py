"""`onto commits`: the commits of a typed store, and what each did."""

from __future__ import annotations

import pytest

from ontolake.ontology import LockContentionError, open_repository


def test_commits_are_listed_newest_first_with_their_metadata(onto, shop) -> None:
    commits = onto("commits", *shop.at, "--json").document["commits"]
    assert [(one["id"], one["parents"], one["metadata"]) for one in commits] == [
        (2, [1], {}), (1, [], {"author": "test"})]  # fmt: skip
    assert commits[1]["author"] == "test"
    assert commits[0]["time"] >= commits[1]["time"]
    plain = onto("commits", *shop.at).out.splitlines()
    assert [line.split("\t")[0] for line in plain] == ["commit", "2", "1"]
    assert plain[2].endswith('{"author": "test"}')


def test_a_part_of_the_commits(onto, native) -> None:
    def ids(*options: str) -> list[int]:
        return [one["id"] for one in onto("commits", *native.at, "--json", *options).document["commits"]]

    assert ids("--since", "1") == [2]
    assert ids("--until", "1") == [1]
    assert ids("--limit", "1") == [2]
    assert onto("commits", "list", *native.at, "--json").document == onto("commits", *native.at, "--json").document
    assert onto("commits", "--help").code == 0
    assert onto("commits", "frob", *native.at).code == 2


def test_examine_tells_what_changed_by_type_and_key(onto, shop) -> None:
    told = onto("commits", "examine", "2", *shop.at, "--json").document
    assert (told["id"], told["parents"]) == (2, [1])
    update, insert = told["changes"]
    assert (update["type"], update["key"], update["change"]) == ("Customer", "c2", "update")
    assert (update["before"]["tier"], update["after"]["tier"]) == (None, "gold")
    assert (insert["kind"], insert["type"], insert["key"], insert["before"]) == (
        "relation", "Rated", ["c2", 1, "2024"], None)  # fmt: skip
    plain = onto("commits", "examine", "2", *shop.at).out
    assert 'name: "Bob\\tthe second" → "Bob", tier: null → "gold"' in plain
    assert onto("commits", *shop.at, "examine", "2").out == plain, "options may come first"
    only = onto("commits", "examine", "2", *shop.at, "--type", "Rated", "--json").document["changes"]
    assert [one["type"] for one in only] == ["Rated"]


@pytest.mark.parametrize(("id", "code"), [("9", 5), ("0", 2), ("x", 2)])
def test_a_commit_that_is_not_there(onto, native, id: str, code: int) -> None:
    done = onto("commits", "examine", id, *native.at)
    assert (done.code, done.out) == (code, "")


def test_reading_disturbs_no_writer(onto, native) -> None:
    repository = open_repository(native.url, config={"lock_timeout": 0.1})
    with repository.transaction("writer"):
        assert onto("commits", *native.at).code == 0
        assert onto("query", "entities", "Customer", *native.at, "--count").out == "2\n"
        assert onto("schema", "drop", "Placed", *native.at).code == 0
        other = open_repository(native.url, config={"lock_timeout": 0.1})
        with pytest.raises(LockContentionError), other.transaction("another"):
            pass
        other.close()
    repository.close()
