"""Write, audit, publish: on a graph a run can go to a branch of its own, which is merged once all is as expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ontolake import urls
from ontolake.errors import OntolakeError
from ontolake.faults import reach
from ontolake.parallel import Parallel, Published, absolute, open_parallel
from ontolake.spark.errors import ExpectationError, PipelineError
from ontolake.spark.pipeline.report import state_of
from ontolake.stores import GRAPH

if TYPE_CHECKING:
    from ontolake.graph import Graph


PREFIX = "run-"
"""The branch of a run is called this, and by the run."""


def check_graph(store: Parallel | None, url: str) -> None:
    """Raise `PipelineError` for a store that is no graph."""
    if store is not None and store.model != GRAPH.name:
        raise PipelineError(f"{url!r} is not a graph", hint=_HINT)


def start_graph(url: str, types: Iterable[Any]) -> None:
    """Make a graph where there is nothing yet. Raises `PipelineError` where there cannot be one."""
    from ontolake.graph import Graph, GraphExistsError

    location = urls.parse(url)
    if location.seam or location.place not in (urls.Place.DIRECTORY, urls.Place.BUCKET):
        raise PipelineError(f"{url!r} is not a graph, which is a directory or a prefix of a bucket", hint=_HINT)
    if urls.detect(url) is None:
        with suppress(GraphExistsError):  # somebody else was quicker
            Graph.init(absolute(url), types).close()


_HINT = "without --graph and --audit it takes any store; the expectations are seen to before anything is published"


def audited(
    url: str, branch: str | None, run: str, actor: str, *, publish: Callable[[Parallel], Published],
    look: Callable[[Parallel], None],
) -> Published:  # fmt: skip
    """Publish to a branch called after the run, look at it there, and merge it.

    Raises what `look` raises: then the branch stays, to be looked at. Raises `Conflict` if others have changed the same
    rows meanwhile; then it is gone.
    """
    from ontolake.graph import Graph

    name, into = f"{PREFIX}{run}", branch or "main"
    with Graph.open(url) as graph:
        for left in _left_behind(graph, url):
            _drop(graph, left)
        graph.branches.create(name, parent=into)
        try:
            with open_parallel(url, branch=name, write=True) as own:
                done = publish(own)
                reach("pipeline: published to a branch")
                if done.commit is not None:
                    look(own)
            if done.commit is not None:
                merged = graph.merge(name, into, actor=actor)
                with open_parallel(url, branch=branch) as store:
                    done = Published(store.view(as_of=merged.commit.id if merged.commit else None).commit, done.written)
        except ExpectationError as error:
            raise ExpectationError(error.failed, branch=name) from None
        except BaseException:
            _drop(graph, name)
            raise
        _drop(graph, name)
    return done


def left_behind(url: str, *, remove: bool = False) -> list[str]:
    """The branches of runs that were killed before they were merged or given up, on a graph; `remove` deletes them.

    The branch of a run that is alive is none of them, nor one that expectations left for looking at.
    """
    from ontolake.graph import Graph

    stamp = urls.detect(url)
    if stamp is None or stamp.kind not in GRAPH.stamps:
        return []
    with Graph.open(absolute(url), read_only=not remove) as graph:
        found = _left_behind(graph, url)
        for name in found if remove else ():
            _drop(graph, name)
    return found


def _left_behind(graph: Graph, url: str) -> list[str]:
    runs = [branch.name.removeprefix(PREFIX) for branch in graph.branches.list() if branch.name.startswith(PREFIX)]
    return [f"{PREFIX}{run}" for run in runs if state_of(url, run) == "killed"]


def _drop(graph: Graph, name: str) -> None:
    with suppress(OntolakeError):
        graph.branches.delete(name)
