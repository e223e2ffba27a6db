"""Stopped at any step, by an error or by kill -9, an operation is whole or not there at all; the audit says which."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from graph_scenarios import ERASURES, RECOVERIES, SCENARIOS, SECRET, Scenario, Stop, drop_for_good, fresh, with_secrets
from graph_support import TYPES, Customer, Order, Placed, customers, held, start
from marking import slow_after

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.graph import Graph, RecoveryBlockedError, RemovedCommitError
from ontolake.graph.commit.sidecars import Sidecar, TableMove
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.row_files import TableFiles

Ready = tuple[Path, Any, Any, list[str]]


class StopAt:
    def __init__(self, n: int) -> None:
        self.n = n
        self.seen: list[str] = []

    def __call__(self, step: str) -> None:
        if step.startswith("graph:"):
            self.seen.append(step)
            if len(self.seen) == self.n + 1:
                raise Stop(step)


def play(scenario: Scenario, url: str, hook: faults.Hook) -> Any:
    """Open a graph, do it, and return what is seen then."""
    with faults.arm(hook), Graph.open(url) as graph:
        scenario.act(graph)
        return scenario.seen(graph)


def prepared(scenario: Scenario, folder: Path) -> Ready:
    """A graph in which a scenario can be played: where, what it shows before and after, and the steps in between."""
    template = folder / "template"
    with fresh(f"{template}/") as graph:
        scenario.prepare(graph)
        before = scenario.seen(graph)
    done = folder / "done"
    shutil.copytree(template, done)
    steps = StopAt(-1)
    after = play(scenario, f"{done}/", steps)
    return template, before, after, steps.seen


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ready]:
    """Prepares a scenario, once for all tests that play it."""
    return cache(lambda name: prepared(SCENARIOS[name], tmp_path_factory.mktemp("ready")))


def of_each_kind(steps: list[str], *which: float) -> list[int]:
    """Steps of every kind: of those of one kind the ones at these shares, 0 for the first and 1 for the last."""
    kinds: dict[str, list[int]] = {}
    for n, step in enumerate(steps):
        kinds.setdefault(step, []).append(n)
    return sorted({same[round(share * (len(same) - 1))] for same in kinds.values() for share in which})


def stopped(scenario: Scenario, template: Path, at: Iterable[int], folder: Path) -> Iterator[tuple[int, str]]:
    """A copy for each of these steps, in which the scenario was stopped there by an error."""
    for n in at:
        place = folder / str(n)
        shutil.copytree(template, place)
        with pytest.raises(Stop):
            play(scenario, f"{place}/", StopAt(n))
        yield n, f"{place}/"
        shutil.rmtree(place)


def killed(
    name: str, template: Path, steps: list[str], folder: Path, at: Iterable[int] | None = None
) -> Iterator[tuple[int, str]]:
    """A copy for every step, or each of these, in which a process of its own was killed there."""
    places = {n: folder / str(n) for n in (range(len(steps)) if at is None else at)}
    for place in places.values():
        shutil.copytree(template, place)
    program = start("graph_victims.py", name, *(f"{n}={place}/" for n, place in places.items()))
    out, err = program.communicate(timeout=280)
    assert program.returncode == 0, err
    assert out.splitlines() == [steps[n] for n in places], err
    for n, place in places.items():
        yield n, f"{place}/"


def check(scenario: Scenario, url: str, step: str, before: Any, after: Any, *, published: bool) -> None:
    """That a graph is whole after it was stopped, says so, and takes the operation again."""
    with Graph.open(url) as graph:
        found = scenario.seen(graph)
        assert found in (before, after), step
        if published:
            assert found == after, f"{step}: it was published"
        actions = [one.action for one in graph.recovered]
        assert [one.action for one in graph.recoveries()] == actions, step
        assert len(actions) <= 1, step
        if actions and found == after:
            assert actions[0] in ("rolled_forward", "completed"), step
        elif actions:
            assert actions[0] in ("rolled_back", "dropped"), step
        newest = next(graph.commits(branch=scenario.branch))
        if "rolled_forward" in actions or "rolled_back" in actions:
            assert newest.author == "omnigraph:recovery"
            assert newest.id == graph.recovered[0].commit
            assert newest.metadata["original_actor"] == "tester"
        if actions:
            assert graph.recovered[0].actor == "tester"
        scenario.act(graph)
        assert scenario.seen(graph) == after, f"{step}: taken up again"
    with Graph.open(url) as graph:
        assert graph.recovered == []


def check_all(
    scenario: Scenario, steps: list[str], stops: Iterator[tuple[int, str]], before: Any, after: Any
) -> None:  # fmt: skip
    assert after != before
    for n, url in stops:
        check(scenario, url, steps[n], before, after, published="graph: published" in steps[: n + 1])


@pytest.mark.parametrize("first", slow_after(1, range(5)))
@pytest.mark.parametrize("name", slow_after(1, SCENARIOS))
def test_an_error_at_any_step_leaves_all_or_nothing(
    name: str, first: int, tmp_path: Path, ready: Callable[[str], Ready]
) -> None:
    template, before, after, steps = ready(name)
    stops = stopped(SCENARIOS[name], template, range(first, len(steps), 5), tmp_path)
    check_all(SCENARIOS[name], steps, stops, before, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_any_step_leaves_all_or_nothing(name: str, tmp_path: Path, ready: Callable[[str], Ready]) -> None:
    template, before, after, steps = ready(name)
    check_all(SCENARIOS[name], steps, killed(name, template, steps, tmp_path), before, after)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["error", "kill"])
@pytest.mark.parametrize("name", RECOVERIES)
def test_recovery_itself_can_be_stopped_at_any_step(name: str, way: str, tmp_path: Path) -> None:
    scenario = RECOVERIES[name]
    template, before, after, steps = prepared(scenario, tmp_path)
    assert (after == before) == (name == "roll back")
    assert len(steps) > 5
    stops = (stopped(scenario, template, range(len(steps)), tmp_path) if way == "error" else
             killed(name, template, steps, tmp_path))
    for n, url in stops:
        step = steps[n]
        with Graph.open(url) as again:
            assert scenario.seen(again) == after, step
            (audit,) = again.recoveries()
            assert audit.actor == "tester"
            assert audit.action in ("completed", name.replace("roll", "rolled").replace(" ", "_")), step
            newest = next(again.commits())
            assert (newest.author, newest.id) == ("omnigraph:recovery", audit.commit), step
            assert not list(Path(url, "__recovery").glob("*.json"))


def rows_without(key: str, described: Any) -> Any:
    """What a graph shows, but for one customer."""
    return {branch: {table: {id: row for id, row in rows.items() if id != key} for table, rows in tables.items()}
            for branch, tables in described.items()}  # fmt: skip


def shown_by_all(graph: Graph) -> dict[str, Any]:
    """The customers that every commit shows, but for the one that is erased."""
    return {commit.id: {id: row for id, row in graph.snapshot(commit.id).rows("Customer") if id != SECRET}
            for branch in graph.branches.list() for commit in graph.commits(branch=branch.name)}  # fmt: skip


def check_erased_again(scenario: Scenario, url: str, step: str, commits: dict[str, Any], after: Any) -> None:
    """That all but one row is shown after an erasure was stopped, and that it is finished by calling it again."""
    with Graph.open(url) as again:
        assert rows_without(SECRET, scenario.seen(again)[0]) == after[0], step
        found = shown_by_all(again)
        assert {id: found[id] for id in commits} == commits, step
        scenario.act(again)
        assert scenario.seen(again) == after, f"{step}: called again"
        files = TableFiles(again.parts.place, again.types()["node:Customer"].location)
        assert files.left_indexes() == set(), step
        with pytest.raises(NotFound):
            again.erase(Customer, SECRET, reason="once more")
        assert again.tags.get("first") in found
        authors = [one.author for one in again.commits() if one.metadata["kind"] == "erasure"]
        assert authors[-1] in ("tester", "omnigraph:recovery"), step
    with Graph.open(url) as again:
        assert again.recovered == []
        found = shown_by_all(again)
        assert {id: found[id] for id in commits} == commits, step
        assert list(again.verify()) == [], step


@pytest.fixture(scope="module")
def erasing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ready, dict[str, Any]]:
    """A graph with a row to erase, and what its commits show beside it."""
    found = prepared(ERASURES["erase"], tmp_path_factory.mktemp("erasing"))
    template, before, after, steps = found
    assert (before[1], after[1]) == (True, False)
    assert {"graph: heads cleared", "graph: version rewritten", "graph: erased files removed"} <= set(steps)
    with Graph.open(f"{template}/", read_only=True) as graph:
        return found, shown_by_all(graph)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_an_erasure_that_raised_at_any_kind_of_step_is_finished_by_calling_it_again(
    part: int, tmp_path: Path, erasing: tuple[Ready, dict[str, Any]]
) -> None:
    (template, _, after, steps), commits = erasing
    for n, url in stopped(ERASURES["erase"], template, of_each_kind(steps, 0)[part::3], tmp_path):
        check_erased_again(ERASURES["erase"], url, steps[n], commits, after)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_erasure_that_was_killed_at_any_kind_of_step_is_finished_by_calling_it_again(
    tmp_path: Path, erasing: tuple[Ready, dict[str, Any]]
) -> None:
    """Killed at the first, the middle and the last step of each kind: a table has a step for every version."""
    (template, _, after, steps), commits = erasing
    for n, url in killed("erase", template, steps, tmp_path, of_each_kind(steps, 0, 0.5, 1)):
        check_erased_again(ERASURES["erase"], url, steps[n], commits, after)


def test_the_same_handle_goes_on_after_an_error(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    with faults.arm(StopAt(3)), pytest.raises(Stop):
        graph.load(Customer, customers("b"))
    graph.load(Customer, customers("c"))
    assert {"a", "c"} <= set(held(graph)["node/Customer"])


def interrupted(graph: Graph, step: str, act: Any) -> None:
    def stop(reached: str) -> None:
        if reached == step:
            raise Stop(step)

    with faults.arm(stop), pytest.raises(Stop):
        act()


@pytest.mark.parametrize("step", slow_after(1, ["graph: before removing versions", "graph: before removing a table"]))
def test_what_was_dropped_for_good_is_removed_by_the_next_opening(graph: Graph, url: str, step: str) -> None:
    """Whatever others did meanwhile, who had the graph open: their commits stay readable."""
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", tier=SECRET))
        tx.load(Order, [{"id": 1}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1, "note": SECRET}])
    first = next(graph.commits()).id
    with Graph.open(url) as other:
        interrupted(graph, step, lambda: drop_for_good(graph))
        assert with_secrets(other)[1]
        other.load("Customer", [{"id": "b", "name": "B"}])
        other.schema_apply(other.schema_plan([*other.types().values(), Placed]))
        other.load(Placed, [{"left_key": "b", "right_key": 1}])
        expected, commits = held(other), [commit.id for commit in other.commits()][:4]
    with Graph.open(url) as again:
        (recovered,) = again.recovered
        assert (recovered.action, recovered.actor) == ("completed", "tester")
        assert "edge:Placed" in recovered.reason
        assert "for good" in recovered.reason
        assert not with_secrets(again)[1]
        assert held(again) == expected
        assert list(again.verify()) == []
        assert [len(dict(again.snapshot(id).rows("Customer"))) for id in commits] == [2, 2, 2, 1]
        with pytest.raises(RemovedCommitError):
            dict(again.snapshot(first).rows("Customer"))


@pytest.mark.slow
def test_a_table_that_somebody_makes_anew_is_not_removed_meanwhile(graph: Graph, url: str, tmp_path: Path) -> None:
    graph.load(Customer, customers("a", tier=SECRET))
    interrupted(graph, "graph: before removing versions", lambda: drop_for_good(graph))
    place = tmp_path / "graph" / "__recovery"
    (file,) = place.glob("*.json")
    living = Sidecar("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main", "main", "me", "schema", [
        TableMove("edge:Placed", "edges/x", 0, "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1, "x")])  # fmt: skip
    graph.parts.sidecars.write(living)
    with Graph.open(url) as again:
        assert again.recovered == []
        assert with_secrets(again)[1]
        again.load("Customer", [{"id": "b", "name": "B"}])
    assert file.exists()
    graph.parts.sidecars.leave(living.operation)
    graph.parts.sidecars.remove(living.operation)
    with Graph.open(url) as again:
        assert [one.action for one in again.recovered] == ["completed"]
        assert not with_secrets(again)[1]
    assert not file.exists()


@pytest.mark.slow
def test_two_drops_that_were_cut_off_are_both_finished(graph: Graph, url: str) -> None:
    with Graph.open(url) as other:
        for number, one in enumerate((graph, other)):
            with one.transaction() as tx:
                tx.load(Customer, customers(f"c{number}"))
                tx.load(Order, [{"id": number}])
                tx.load(Placed, [{"left_key": f"c{number}", "right_key": number, "note": SECRET}])
            drop = partial(one.schema_apply, one.schema_plan([Customer, Order]), hard=True)
            interrupted(one, "graph: before removing a table", drop)
            if one is graph:
                other.schema_apply(other.schema_plan(TYPES))
    with Graph.open(url) as again:
        assert [one.action for one in again.recovered] == ["completed", "completed"]
        assert not with_secrets(again)[1]
        assert list(again.verify()) == []


def test_a_readers_open_leaves_sidecars_alone(graph: Graph, url: str, tmp_path: Path) -> None:
    interrupted(graph, "graph: before publishing", lambda: graph.load(Customer, customers("a")))
    sidecars = list((tmp_path / "graph" / "__recovery").glob("*.json"))
    assert len(sidecars) == 1
    with Graph.open(url, read_only=True) as reader:
        assert held(reader)["node/Customer"] == {}
    assert list((tmp_path / "graph" / "__recovery").glob("*.json")) == sidecars


def open_at_once(url: str, count: int) -> list[Graph]:
    barrier, opened = threading.Barrier(count), []

    def open_it() -> None:
        barrier.wait()
        opened.append(Graph.open(url))

    threads = [threading.Thread(target=open_it) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return opened


@pytest.mark.parametrize("round", slow_after(1, range(3)))
@pytest.mark.parametrize("name", slow_after(1, RECOVERIES))
def test_two_opens_racing_on_one_sidecar_recover_once(graph: Graph, url: str, name: str, round: int) -> None:
    scenario = RECOVERIES[name]
    scenario.prepare(graph)
    before = scenario.seen(graph)
    opened = open_at_once(url, 2)
    seen = [scenario.seen(one) for one in opened]
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert (seen[0] == before) == (name == "roll back")
    (commit,) = [commit for commit in opened[0].commits() if commit.author == "omnigraph:recovery"]
    (audit,) = opened[0].recoveries()
    assert audit.commit == commit.id
    assert {one.commit for handle in opened for one in handle.recovered} == {commit.id}


def test_a_sidecar_that_cannot_be_explained_blocks_its_branch_only(graph: Graph, url: str, tmp_path: Path) -> None:
    graph.branches.create("try")
    interrupted(graph, "graph: before publishing", lambda: graph.load(Customer, customers("a"), branch="try"))
    (file,) = (tmp_path / "graph" / "__recovery").glob("*.json")
    data = json.loads(file.read_text())
    data["tables"][0]["path"] = "nodes/elsewhere"
    file.write_text(json.dumps(data))
    with Graph.open(url) as again:
        with pytest.raises(RecoveryBlockedError, match=file.name) as caught:
            again.load(Customer, customers("b"), branch="try")
        assert (caught.value.branch, caught.value.file) == ("try", f"__recovery/{file.name}")
        again.load(Customer, customers("c"))
        assert list(held(again)["node/Customer"]) == ["c"]
        assert held(again, "try")["node/Customer"] == {}
    assert file.exists()


WHOLE = json.loads(Sidecar("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main", "main", None, "load", [], "2024-05-06T07:08:09+00:00",
                           "host/boot", "1/2").to_bytes())
NO_SIDECAR = [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"format": 99}', b'{"format": 1, "tables": []}']
NOT_WHOLE: list[dict[str, Any]] = [
    {"operation": "01ARZ3NDEKTSV4RRFFQ69G5FAW"}, {"branch": 7}, {"process": "x/2"}, {"started_at": "yesterday"},
    {"started_at": "2024-05-06T07:08:09"}, {"tables": [{"key": "node:Customer"}]}, {"tables": None},
    {"types": [{"name": "T"}]}, {"lineage": ["{"]}, {"extra": []},
]  # fmt: skip


@pytest.mark.parametrize("given", slow_after(2, [*NO_SIDECAR, *NOT_WHOLE]))
def test_an_unreadable_sidecar_is_set_aside(graph: Graph, url: str, tmp_path: Path, given: Any) -> None:
    folder, name = tmp_path / "graph" / "__recovery", f"{WHOLE['operation']}.json"
    content = given if isinstance(given, bytes) else json.dumps({**WHOLE, **given}).encode()
    folder.mkdir()
    (folder / name).write_bytes(content)
    with Graph.open(url) as again:
        (recovered,) = again.recovered
        assert recovered.action == "quarantined"
        assert name in recovered.reason
        assert "\n" not in recovered.reason
        again.load(Customer, customers("a"))
    assert (folder / "quarantine" / name).read_bytes() == content
    assert not (folder / name).exists()
    assert len(list(graph.recoveries())) == 1


def test_a_sidecar_with_nothing_wrong_in_it_is_taken_for_what_it_is(graph: Graph, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "graph" / "__recovery"
    folder.mkdir()
    (folder / f"{WHOLE['operation']}.json").write_text(json.dumps(WHOLE))
    with Graph.open(url) as again:
        assert [one.action for one in again.recovered] == ["dropped"]


def test_a_sidecar_of_a_living_process_is_left_alone(graph: Graph, url: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if step == "graph: before publishing":
            inside.set()
            assert go_on.wait(60)

    with faults.arm(pause):
        writer = threading.Thread(target=lambda: graph.load(Customer, customers("a")))
        writer.start()
        assert inside.wait(60)
        with Graph.open(url) as other:
            assert other.recovered == []
            go_on.set()
            writer.join()
            assert list(held(other)["node/Customer"]) == ["a"]


def test_what_others_published_since_is_not_undone(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    interrupted(graph, "graph: before publishing", lambda: graph.load(Customer, customers("lost")))
    graph.parts.writer._unsettled = False  # as another process, which knows nothing of it
    graph.load(Customer, customers("b"))
    with Graph.open(url) as again:
        assert [one.action for one in again.recovered] == ["discarded"]
        assert list(held(again)["node/Customer"]) == ["a", "b"]


def test_who_was_finished_by_somebody_else_is_told_of_its_own_commit(graph: Graph, url: str, tmp_path: Path) -> None:
    """Not of the last one of the branch, which may be of others by then."""
    with Graph.open(url) as other:
        theirs: list[str] = []

        def finish(step: str) -> None:
            if step == "graph: before publishing" and not theirs:
                (file,) = (tmp_path / "graph" / "__recovery").glob("*.json")
                theirs.append("")
                theirs.append(str(other.parts.recoverer._recover(Sidecar.from_bytes(file.read_bytes())).commit))
                commit = other.load(Order, [{"id": 1}])
                assert commit is not None
                theirs.append(commit.id)

        with faults.arm(finish):
            mine = graph.load(Customer, customers("a"))
        assert mine is not None
        assert [commit.id for commit in graph.commits()][:2] == [theirs[2], mine.id]
        assert theirs[1] == mine.id
        assert graph.load(Customer, customers("b")) is not None
        assert list(held(other)["node/Customer"]) == ["a", "b"]


def test_a_version_with_somebody_elses_rows_in_it_is_never_rolled_forward(graph: Graph, url: str) -> None:
    """A writer that died before it saw that it had built on rows which nobody published."""
    graph.load(Customer, customers("a"))
    state = graph.parts.manifest.state()
    stranger = state.types["node:Customer"].schema.empty_table().from_pylist(
        customers("stranger", tier=None, email=None), state.types["node:Customer"].schema)
    dataset = graph.parts.tables.latest(state.types["node:Customer"], "main")
    dataset.insert(stranger)

    def stop_before_looking(step: str) -> None:
        if step == "graph: table moved":
            raise Stop(step)

    with faults.arm(stop_before_looking), pytest.raises(Stop):
        graph.load(Customer, customers("b"))
    with Graph.open(url) as again:
        assert list(held(again)["node/Customer"]) == ["a"]
        again.load(Customer, customers("c"))
        assert list(held(again)["node/Customer"]) == ["a", "c"]


def test_sidecars_can_be_read_back(graph: Graph) -> None:
    sidecar = Sidecar("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main", "main", "me", "load", [], "2024-05-06T07:08:09+00:00")
    assert Sidecar.from_bytes(sidecar.to_bytes()) == sidecar
    assert isinstance(graph.parts.tables, GraphTables)
