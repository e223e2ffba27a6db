"""The commands of one history, on every model that has the whole contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after
from versioned_places import PLACES, REFERENCE, VersionedPlace

from ontolake import stores
from ontolake.sql import open_database


@pytest.fixture(params=slow_after(2, list(PLACES)))
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VersionedPlace:
    """A store: `a` and `b` by Ada on the first branch, then `a` changed by Bob."""
    monkeypatch.setattr(stores, "MODELS", (*stores.MODELS, REFERENCE))
    found = PLACES[request.param](tmp_path)
    found.write(found.first, {"a": {"f": 1, "g": 1}, "b": {"f": 2, "g": 2}}, "two records", "ada")
    found.write(found.first, {"a": {"f": 5, "g": 1}}, "five", "bob")
    return found


def row(onto: Any, place: VersionedPlace, key: str, ref: str | None = None) -> Any:
    from ontolake.history import Ref

    with stores.find(place.url).opened() as store:
        found = place.adapter.records(store.snapshot() if ref is None else store.at(Ref.parse(ref)))
    return found.get(key)


def forked(onto: Any, place: VersionedPlace) -> None:
    """A branch `try`, and on both sides another value for the field f of a."""
    assert onto("branch", place.url, "create", "try").code == 0
    place.write("try", {"a": {"f": 7, "g": 1}, "c": {"f": 3, "g": None}}, "seven", "eve")
    place.write(place.first, {"a": {"f": 6, "g": 1}}, "six", "bob")


def test_branches_are_renamed_and_protected(onto, place: VersionedPlace) -> None:
    url = place.url
    assert onto("branch", "create", url, "try", "--at", place.first + "~1" if place.first else "@1").code == 0
    assert row(onto, place, "a", "try") == {"f": 1, "g": 1}
    assert onto("branch", "rename", url, "try", "better").code == 0
    assert [one["name"] for one in onto("branch", url, "--json").document["branches"]][1:] == ["better"]
    done = onto("branch", "protect", url, "better", "--json")
    assert done.document["branch"]["protected"] is True
    refused = onto("branch", "delete", url, "better")
    assert (refused.code, refused.out) == (7, "")
    assert "--off" in refused.err
    assert "yes" in onto("branch", url).out
    assert onto("branch", "protect", url, "better", "--off").code == 0
    token = onto("branch", "delete", url, "better", "--json").document["token"]
    assert onto("branch", "delete", url, "better", "--token", token).code == 0
    assert onto("branch", "rename", url, "nobody", "some").code == 2
    assert onto("branch", "delete", url, "nobody").code == 2
    first = onto("branch", "delete", url, "main")
    assert (first.code, first.out) == (2, "")
    assert "first one" in first.err
    assert onto("branch", "create", url, "a..b").code in (2, 4)


def test_the_branches_of_a_graph_have_a_title_for_each_column(onto, tmp_path: Path) -> None:
    url = PLACES["graph"](tmp_path).url
    for command in (("graph", "branch", "list", url), ("branch", url)):
        lines = onto(*command).out.splitlines()
        assert {line.count("\t") for line in lines} == {4}, command
        assert lines[1].split("\t")[-1] == "-"


def test_a_tag_of_another_branch_is_made_again_there(onto, place: VersionedPlace) -> None:
    forked(onto, place)
    assert onto("tag", "create", place.url, "v1", "try").code == 0
    again = onto("tag", "delete", place.url, "v1").out.splitlines()[1].split()[1:]
    assert onto(*again).code == 0
    assert row(onto, place, "a", "v1") == {"f": 7, "g": 1}


def test_tags_name_commits(onto, place: VersionedPlace) -> None:
    url = place.url
    created = onto("tag", url, "create", "v1", "-m", "the first", "--json").document["created"]
    assert created["name"] == "v1"
    assert onto("tag", "create", url, "v1").code == 6
    place.write(place.first, {"a": None})
    assert onto("tag", "create", url, "gone").code == 0
    (first, second) = sorted(onto("tag", url, "--json").document["tags"], key=lambda tag: tag["name"], reverse=True)
    assert (first["commit"], first["message"], second["name"]) == (created["commit"], "the first", "gone")
    assert "the first" in onto("tag", url).out
    changes = onto("diff", url, "v1", "--json").document["changes"]
    assert [(one["key"], one["kind"]) for one in changes] == [("a", "delete")]
    done = onto("tag", "delete", url, "v1")
    assert done.code == 0
    again = done.out.splitlines()[1].split()[1:]
    assert onto(*again).code == 0, "it says how to make the tag again"
    assert onto("diff", url, "v1", "gone", "--json").document["changes"] == changes
    assert onto("tag", "delete", url, "nobody").code == 2
    assert onto("tag", "create", url, "late", "nowhere").code == 2


def test_diff_shows_fields_rows_or_counts(onto, place: VersionedPlace) -> None:
    url, field = place.url, place.adapter.field("f")
    head = onto("tag", "create", url, "before", "--json").document["created"]["commit"]
    place.write(place.first, {"a": {"f": 9, "g": 1}, "b": None, "d": {"f": 4, "g": 4}})
    lines = [line.split("\t") for line in onto("diff", url, "before").out.splitlines()]
    assert lines[0] == ["kind", "table", "key", "changes"]
    assert ["update", place.table, "a", f"{field}: 5 → 9"] in lines
    assert len(lines) == 4
    whole = onto("diff", url, str(head), "--rows").out.splitlines()
    assert whole[0].split("\t") == ["kind", "table", "key", "before", "after"]
    assert len(whole) == 4
    assert onto("diff", url, "before", "--stat").out == f"table\tinserted\tupdated\tdeleted\n{place.table}\t1\t1\t1\n"
    stat = onto("diff", url, "before", "--stat", "--json").document["counts"]
    assert stat == [{"table": place.table, "inserted": 1, "updated": 1, "deleted": 1}]
    changes = onto("diff", url, "before", "--table", place.table, "--json").document["changes"]
    assert [one["fields"] for one in changes if one["kind"] == "update"] == [[field]]
    assert onto("diff", url, "before", "--table", "nothing").code == 2
    assert onto("diff", url, "before", "--stat", "--rows").code == 2
    assert onto("diff", url, "nowhere").code == 2
    assert onto("diff", url, "@2999-01-01", "--json").document["changes"] == []


def test_the_log_says_what_verbs_of_history_did(onto, place: VersionedPlace) -> None:
    if place.adapter.__name__ == "ReferenceAdapter":
        pytest.skip("a store of the tests has words of its own")
    url = place.url
    assert onto("branch", url, "create", "try").code == 0
    place.write("try", {"c": {"f": 3, "g": None}}, "three", "eve")
    ids = [str(onto(*words, "--json").document["commit"]["id"]) for words in (
        ("merge", url, "try"), ("revert", url, "main"), ("restore", url, "main~1"), ("undo", url))]  # fmt: skip
    shown = [line.split("\t")[3] for line in onto("log", url, "--limit", "4").out.splitlines()[1:]]
    assert shown == [f"revert of {ids[2]}", f"restore of {ids[0]}", f"revert of {ids[0]}", "merge of try"]


def test_blame_has_the_values_of_now_after_a_merge(onto, place: VersionedPlace) -> None:
    forked(onto, place)
    assert onto("merge", place.url, "try", "--strategy", "theirs").code == 0
    lines = [line.split("\t") for line in onto("blame", place.url, place.table, "a").out.splitlines()[1:]]
    assert {line[0]: (line[1], line[4]) for line in lines if line[0] != "id"} == {
        place.adapter.field("f"): ("7", "eve"), place.adapter.field("g"): ("1", "ada")}  # fmt: skip


def test_names_that_are_not_there_or_taken_are_refused_in_the_same_words(onto, place: VersionedPlace) -> None:
    url = place.url
    if place.adapter.__name__ == "ReferenceAdapter":
        pytest.skip("a store of the tests has words of its own")
    assert onto("branch", url, "create", "try").code == onto("tag", url, "create", "v1").code == 0
    for words, code, error, hint in (
        (("branch", url, "create", "try"), 6, "branch 'try' is there already", "delete it first, or use another name"),
        (("branch", url, "create", "v1"), 6, "branch 'v1' cannot be called that: there is a tag of this name",
         "use another name"),
        (("tag", url, "create", "v1"), 6, "tag 'v1' is there already", "delete it first, or use another name"),
        (("tag", url, "create", "try"), 6, "tag 'try' cannot be called that: there is a branch of this name",
         "use another name"),
        (("branch", url, "rename", "try", "main"), 6, "branch 'main' is there already",
         "delete it first, or use another name"),
        (("branch", url, "rename", "main", "x"), 2, "branch 'main' is the first one, and cannot be renamed",
         "name another branch"),
        (("merge", url, "none"), 2, "there is no branch 'none'", "onto branch and onto tag list what there is"),
        (("blame", url, "none", "a"), 2, "there is no table 'none'", f"there are {place.table}"),
        (("restore", url, "v1", "--table", "none"), 2, "there is no table 'none'", f"there are {place.table}"),
    ):  # fmt: skip
        done = onto(*words)
        assert (done.code, done.err) == (code, f"error: {error}\nhint: {hint}\n"), words


def test_what_defines_tables_is_in_the_log_and_in_diffs(onto, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    with open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')")
        db.execute("ALTER TABLE t ADD COLUMN n BIGINT; CREATE TABLE u (id BIGINT PRIMARY KEY); DROP TABLE u")
        db.execute("ALTER TABLE t ALTER COLUMN n TYPE TEXT; INSERT INTO t VALUES (2, 'y', 'z'); DROP TABLE t")
    log = [line.split("\t")[4] for line in onto("log", url).out.splitlines()[1:]]
    t, u = "main.public.t", "main.public.u"
    assert log == [f"{t} dropped -2", f"{t} +1", f"{t} altered", f"{u} dropped", f"{u} created", f"{t} altered",
                   f"{t} +1", f"{t} created"]  # fmt: skip
    before, after = (f'{{"type": "{name}", "nullable": true, "default": null}}' for name in ("BIGINT", "TEXT"))
    lines = onto("diff", url, "3", "6").out.splitlines()
    assert lines[1:] == [f"alter\t{t}\t-\tcolumn n: {before} → {after}"]
    assert onto("diff", url, "2", "3").out.splitlines()[1] == f"alter\t{t}\t-\tcolumn n: (none) → {before}"
    (change,) = onto("diff", url, "3", "6", "--json").document["changes"]
    assert (change["kind"], change["key"], change["fields"]) == ("schema", None, ["column n"])
    assert [one["type"] for one in change["after"]["columns"]] == ["BIGINT", "TEXT", "TEXT"]
    assert [line.split("\t")[0] for line in onto("diff", url, "6", "8").out.splitlines()] == ["kind", "drop", "delete"]
    assert onto("diff", url, "3", "6", "--stat").out.splitlines()[1:] == []


def test_a_merge_takes_what_does_not_collide(onto, place: VersionedPlace) -> None:
    url = place.url
    assert onto("branch", url, "create", "try").code == 0
    place.write("try", {"a": {"f": 5, "g": 8}, "c": {"f": 3, "g": None}})
    place.write(place.first, {"a": {"f": 6, "g": 1}})
    preview = onto("merge", url, "try", "--dry-run", "--json").document
    assert (preview["status"], preview["commit"]) == ("merged", None)
    assert row(onto, place, "c") is None
    done = onto("merge", url, "try", "-m", "bring it", "--author", "ada", "--json").document
    assert done["tables"] == {place.table: {"inserted": 1, "updated": 1, "deleted": 0}}
    assert (done["commit"]["author"], done["commit"]["message"]) == ("ada", "bring it")
    assert row(onto, place, "a") == {"f": 6, "g": 8}
    assert "nothing to do" in onto("merge", url, "try").out
    assert onto("merge", url, "nowhere").code == 2
    assert onto("merge", url, "try", "--into", "nowhere").code == 2
    assert onto("merge", url, "try", "--into", "try").code in (2, 4)


def test_conflicts_are_shown_written_and_taken_back(onto, place: VersionedPlace, tmp_path: Path) -> None:
    url, field, file = place.url, place.adapter.field("f"), str(tmp_path / "out.json")
    forked(onto, place)
    for arguments in ((), ("--dry-run",)):
        done = onto("merge", url, "try", *arguments)
        assert done.code == 6
        assert done.out.splitlines() == ["table\tkey\tfield\tkind\tbase\tours\ttheirs",
                                         f"{place.table}\ta\t{field}\tdivergent_update\t5\t6\t7"]
        assert "--conflicts" in done.err
    done = onto("merge", url, "try", "--conflicts", file, "--json")
    assert (done.code, done.document["status"], done.error["type"]) == (6, "conflicts", "MergeConflictError")
    written = json.loads(Path(file).read_text())
    assert written["conflicts"] == [{**done.document["conflicts"][0], "take": None}]
    assert onto("merge", url, "try", "--resolve", file).code == 6, "nothing is decided yet"
    written["conflicts"][0]["take"] = {"value": 67}
    Path(file).write_text(json.dumps(written))
    assert onto("merge", url, "try", "--resolve", file).code == 0
    assert row(onto, place, "a") == {"f": 67, "g": 1}
    assert row(onto, place, "c") == {"f": 3, "g": None}


@pytest.mark.parametrize(("take", "expected"), [("ours", 6), ("theirs", 7), ("base", 5)])
def test_a_decision_takes_a_side(onto, place: VersionedPlace, tmp_path: Path, take: str, expected: int) -> None:
    file = tmp_path / "in.json"
    forked(onto, place)
    file.write_text(json.dumps([{"table": place.table, "key": "a", "field": place.adapter.field("f"), "take": take}]))
    assert onto("merge", place.url, "try", "--resolve", str(file)).code == 0
    assert row(onto, place, "a")["f"] == expected


@pytest.mark.parametrize(("options", "expected"), [
    (["--strategy", "ours"], 6), (["--strategy", "theirs"], 7), (["--table", "{}=theirs"], 7),
    (["--strategy", "theirs", "--table", "{}=ours"], 6)])  # fmt: skip
def test_a_strategy_settles_all(onto, place: VersionedPlace, options: list[str], expected: int) -> None:
    forked(onto, place)
    done = onto("merge", place.url, "try", *(one.format(place.table) for one in options))
    assert (done.code, done.err) == (0, "")
    assert row(onto, place, "a")["f"] == expected


@pytest.mark.parametrize(("content", "said"), [
    ("{", "is not JSON"), ("3", "no list of conflicts"), ('{"conflicts": [3]}', "entry 1 of"),
    ('[{"table": "TABLE", "key": "a", "take": "mine"}]', 'entry 1 of .*(TABLE "a"): .*mine'),
    ('[{"table": "TABLE", "key": "b", "take": null}, {"key": "a", "take": "ours"}]', "entry 2 of"),
    ('[{"table": "TABLE", "key": "a", "field": 3, "take": "ours"}]', "the field 3 is not text"),
    ('[{"table": "TABLE", "key": "b", "take": "ours"}]', "not in conflict"),
])  # fmt: skip
def test_a_malformed_decision_is_named(
    onto, place: VersionedPlace, tmp_path: Path, content: str, said: str
) -> None:  # fmt: skip
    import re

    file = tmp_path / "in.json"
    file.write_text(content.replace("TABLE", place.table))
    forked(onto, place)
    done = onto("merge", place.url, "try", "--strategy", "theirs", "--resolve", str(file))
    assert (done.code, done.out) == (2, "")
    assert re.search(re.escape(said).replace(re.escape(".*"), ".*").replace("TABLE", place.table), done.err)
    assert row(onto, place, "a")["f"] == 6, "nothing was changed"


def test_a_decision_file_that_cannot_be_read_is_named(onto, place: VersionedPlace, tmp_path: Path) -> None:
    forked(onto, place)
    done = onto("merge", place.url, "try", "--resolve", str(tmp_path / "missing.json"))
    assert done.code == 2
    assert "missing.json" in done.err
    assert onto("merge", place.url, "try", "--conflicts", str(tmp_path / "no" / "where.json")).code == 5
    for wrong in ("x", "=ours", f"{place.table}=mine", "nobody=ours"):
        assert onto("merge", place.url, "try", "--table", wrong).code == 2, wrong


def test_decisions_are_kept_when_conflicts_are_written_again(onto, place: VersionedPlace, tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    forked(onto, place)
    place.write("try", {"b": {"f": 20, "g": 2}})
    place.write(place.first, {"b": {"f": 21, "g": 2}})
    assert onto("merge", place.url, "try", "--conflicts", str(file)).code == 6
    entries = json.loads(file.read_text())["conflicts"]
    assert [one["key"] for one in entries] == ["a", "b"]
    entries[1]["take"] = "theirs"
    file.write_text(json.dumps({"conflicts": entries}))
    assert onto("merge", place.url, "try", "--resolve", str(file), "--conflicts", str(file)).code == 6
    again = json.loads(file.read_text())["conflicts"]
    assert {one["key"]: one["take"] for one in again} == {"a": None, "b": "theirs"}
    file.write_text(json.dumps({"conflicts": [{**one, "take": one["take"] or "ours"} for one in again]}))
    assert onto("merge", place.url, "try", "--resolve", str(file)).code == 0
    assert (row(onto, place, "a")["f"], row(onto, place, "b")["f"]) == (6, 20)


def test_revert_restore_and_cherry_pick(onto, place: VersionedPlace) -> None:
    url = place.url
    five = onto("log", url, "--limit", "1", "--json").document["commits"][0]["id"]
    assert onto("branch", url, "create", "try", "--at", str(five)).code == 0
    place.write(place.first, {"b": {"f": 3, "g": 2}})
    done = onto("revert", url, str(five), "-m", "no", "--json").document
    assert done["commit"]["message"] == "no"
    assert (row(onto, place, "a")["f"], row(onto, place, "b")["f"]) == (1, 3)
    tip = place.write("try", {"c": {"f": 4, "g": None}})
    assert onto("cherry-pick", url, "try", "--dry-run").code == 0
    assert row(onto, place, "c") is None
    assert onto("cherry-pick", url, f"try@{tip}").code == 0
    assert row(onto, place, "c") == {"f": 4, "g": None}
    assert onto("restore", url, str(five), "--table", place.table, "--dry-run").code == 0
    assert onto("restore", url, str(five), "--author", "ada", "--json").document["commit"]["author"] == "ada"
    assert (row(onto, place, "a")["f"], row(onto, place, "c")) == (5, None)
    assert onto("revert", url, f"try@{tip}").code in (2, 4), "it is not on that branch"
    assert onto("revert", url, "nowhere").code == 2
    assert onto("restore", url, "@999999").code == 2


def test_a_revert_of_what_was_changed_since_is_a_conflict(onto, place: VersionedPlace) -> None:
    five = onto("log", place.url, "--limit", "1", "--json").document["commits"][0]["id"]
    place.write(place.first, {"a": {"f": 6, "g": 1}})
    done = onto("revert", place.url, str(five))
    assert done.code == 6
    assert "divergent_update" in done.out
    assert onto("revert", place.url, str(five), "--strategy", "theirs").code == 0
    assert row(onto, place, "a")["f"] == 1


def test_undo_and_undo_of_it(onto, place: VersionedPlace) -> None:
    done = onto("undo", place.url)
    assert done.code == 0
    assert "five" in done.out
    assert row(onto, place, "a")["f"] == 1
    again = done.out.splitlines()[-1].split()
    assert again[0] == "onto"
    assert onto(*again[1:]).code == 0
    assert row(onto, place, "a")["f"] == 5
    assert onto("branch", place.url, "create", "try").code == 0
    place.write("try", {"a": None})
    assert onto("undo", place.url, "--branch", "try", "--dry-run", "--json").document["commit"] is None
    assert row(onto, place, "a", "try") is None
    assert onto("undo", place.url, "--branch", "try", "--json").document["undone"]["id"]
    assert row(onto, place, "a", "try") == {"f": 5, "g": 1}
    assert onto("branch", "protect", place.url, "try").code == 0
    refused = onto("undo", place.url, "--branch", "try")
    assert (refused.code, refused.out) == (7, "")


def test_blame_and_history_of_a_row(onto, place: VersionedPlace) -> None:
    url, adapter = place.url, place.adapter
    fields = onto("blame", url, place.table, "a", "--json").document["fields"]
    assert fields[adapter.field("f")]["message"] == "five"
    assert fields[adapter.field("g")]["author"] == "ada"
    lines = [line.split("\t") for line in onto("blame", url, place.table, "a").out.splitlines()]
    assert lines[0] == ["field", "value", "commit", "time", "author", "message"]
    assert [line[1] for line in lines if line[0] == adapter.field("f")] == ["5"]
    first = onto("log", url, "--limit", "2", "--json").document["commits"][1]["id"]
    past = onto("blame", url, place.table, "a", "--at", str(first), "--json").document["fields"]
    assert past[adapter.field("f")]["id"] == first
    versions = onto("blame", url, place.table, "a", "--history", "--json").document["versions"]
    assert [one["commit"]["message"] for one in versions] == ["five", "two records"]
    assert len(onto("blame", url, place.table, "a", "--history").out.splitlines()) == 3
    assert onto("blame", url, place.table, "nobody").code == 5
    assert onto("blame", url, place.table, "a", "--at", "nowhere").code == 2


def test_erase_takes_the_token_of_its_preview(onto, place: VersionedPlace) -> None:
    url, what = place.url, ("erase", place.url, place.table, "a", "--reason", "on request")
    done = onto(*what, "--json")
    if not stores.find(url).offers("erase"):
        assert (done.code, done.out) == (2, "")
        return
    assert done.code == 0, done.err
    preview = done.document
    assert preview["would_erase"]["items"] >= 2
    assert "cannot be undone" in onto(*what).out
    assert row(onto, place, "a") is not None
    assert onto(*what, "--token", "wrong").code == 7
    assert onto("erase", url, place.table, "a", "--reason", "over", "--token", preview["token"]).code == 7
    place.write(place.first, {"b": {"f": 1, "g": 1}})
    assert onto(*what, "--token", preview["token"]).code == 7, "the branch has moved since"
    token = onto(*what, "--json").document["token"]
    assert onto(*what, "--token", token, "--json").document["erased"]["items"] >= 2
    assert row(onto, place, "a") is None
    assert onto(*what).code == 5
    assert onto("erase", url, place.table, "b").code == 2, "a reason is needed"


def test_the_log_has_a_line_a_commit(onto, place: VersionedPlace) -> None:
    url = place.url
    lines = [line.split("\t") for line in onto("log", url).out.splitlines()]
    assert lines[0] == ["commit", "time", "author", "message", "changes"]
    assert [line[2:] for line in lines[1:3]] == [["bob", "five", f"{place.table} ~1"],
                                                 ["ada", "two records", f"{place.table} +2"]]
    assert onto("log", url, "--long").out.splitlines()[0].split("\t")[-1] == "metadata"
    commits = onto("log", url, "--json").document["commits"]
    assert [(one["author"], one["message"]) for one in commits[:2]] == [("bob", "five"), ("ada", "two records")]


def test_the_log_draws_branches_and_merges(onto, place: VersionedPlace) -> None:
    url = place.url
    forked(onto, place)
    assert onto("tag", "create", url, "v1").code == 0
    assert onto("merge", url, "try", "--strategy", "ours", "-m", "both").code == 0
    lines = onto("log", url, "--graph").out.splitlines()
    drawing = ["".join(letter for letter in line.split("  ")[0] if letter in "*|/\\ ").rstrip() for line in lines]
    assert drawing[:2] == ["*", "|\\"]
    assert sorted(drawing[2:4]) == ["* |", "| *"]
    assert [line for line in drawing[4:] if line != "| *"][:2] == ["|/", "*"], "a branch may begin with a commit"
    assert "both" in lines[0]
    assert "(main)" in lines[0]
    assert any("(try)" in line and "seven" in line for line in lines)
    assert any("(tag v1)" in line for line in lines)
    document = onto("log", url, "--graph", "--json").document["commits"]
    assert document[0]["refs"] == ["main"]
    assert len(document[0]["parents"]) == 2
    assert onto("log", url, "--graph", "--branch", "try").code == 2


def test_typed_stores_of_v1_and_v2_say_that_they_have_no_branches(onto, native, tmp_path: Path) -> None:
    for command in (("tag", native.url), ("tag", "create", native.url, "v1"), ("merge", native.url, "try"),
                    ("revert", native.url, "1"), ("restore", native.url, "1"), ("cherry-pick", native.url, "1"),
                    ("undo", native.url), ("blame", native.url, "entity/Customer", "c1"),
                    ("erase", native.url, "entity/Customer", "c1", "--reason", "r"),
                    ("branch", "rename", native.url, "a", "b"), ("branch", "protect", native.url, "a")):  # fmt: skip
        done = onto(*command)
        assert (done.code, done.out) == (2, ""), command
        assert "typed stores of engine v1 and v2 have no branches" in done.err
        assert "hint: onto convert" in done.err
    assert onto("merge", f"{tmp_path}/nothing.db", "try").code == 5


@pytest.mark.slow
def test_keys_of_several_parts_and_new_tables(onto, tmp_path: Path) -> None:
    url, key, file = f"file://{tmp_path}/tables.db", '["x", "2026-01-02"]', tmp_path / "open.json"
    with open_database(url) as database:
        database.execute("CREATE TABLE d (a text, b date, v int, PRIMARY KEY (a, b))")
        database.execute("INSERT INTO d VALUES ('x', DATE '2026-01-02', 1)")
    assert onto("blame", url, "main.public.d", key, "--json").document["fields"]["v"]["id"] == 2
    assert onto("blame", url, "main.public.d", "x").code == 2
    assert onto("branch", url, "create", "try").code == 0
    with open_database(url, branch="try") as database:
        database.execute("UPDATE d SET v = 2")
        database.execute("CREATE TABLE n (id int PRIMARY KEY)")
    with open_database(url) as database:
        database.execute("UPDATE d SET v = 3")
    assert onto("diff", url, "main", "try").out.splitlines() == [
        "kind\ttable\tkey\tchanges", "create\tmain.public.n\t-\t-", f"update\tmain.public.d\t{key}\tv: 3 → 2"]
    assert onto("merge", url, "try", "--conflicts", str(file)).code == 6
    file.write_text(file.read_text().replace('"take": null', '"take": "theirs"'))
    done = onto("merge", url, "try", "--resolve", str(file))
    assert (done.code, done.err) == (0, "")
    assert onto("diff", url, "main", "try").out == "kind\ttable\tkey\tchanges\n"
