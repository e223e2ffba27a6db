"""Write, audit, publish: a run can go to a branch of its own, which is merged once all is as expected.

Graphs have branches, and typed stores whose engine keeps them. Where there is no store yet, one is started that can do
what the run needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ontolake import stores, urls
from ontolake.errors import Invalid, NotFound, OntolakeError
from ontolake.faults import reach
from ontolake.ontology.repository import open_repository
from ontolake.parallel import Parallel, Published, absolute, open_parallel
from ontolake.spark.errors import ExpectationError, PipelineError
from ontolake.spark.pipeline.report import state_of
from ontolake.stores import GRAPH, TYPED

if TYPE_CHECKING:
    from ontolake.history import VersionControlled


BRANCHED_ENGINE = "v3"
"""The first engine of typed stores that keeps branches and deletions."""
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


_HINT = "without --graph it takes any store; the expectations are seen to before anything is published"


def starts_graph(url: str, *, graph: bool, audit: bool) -> bool:
    """Whether a run makes a graph where there is nothing yet: if one is asked for, and for an audit also where a typed
    store would not be in SQLite."""
    location = urls.parse(url)
    return graph or (audit and urls.detect(url) is None and not location.seam
                     and location.place in (urls.Place.DIRECTORY, urls.Place.BUCKET))


def start_typed(url: str) -> None:
    """Make a typed store that keeps branches and deletions where there is nothing yet.

    Raises what opening it raises, such as an engine that its place does not have.
    """
    if urls.detect(url) is None:
        open_repository(absolute(url), engine_version=BRANCHED_ENGINE).close()


def check_auditable(url: str) -> None:
    """Raise `LayoutLacksError` for a typed store without branches, `PipelineError` for what is no target of runs."""
    store = stores.find(url)
    if store.model not in (GRAPH, TYPED):
        raise PipelineError(f"{url!r} is {store.described}, which no pipeline publishes to by way of a branch",
                            hint="leave --audit out")
    with store.opened() as opened:
        _ = opened.branches


def audited(
    url: str, branch: str | None, run: str, actor: str, *, publish: Callable[[Parallel], Published],
    look: Callable[[Parallel], None],
) -> Published:  # fmt: skip
    """Publish to a branch called after the run, look at it there, and merge it.

    Raises what `look` raises: then the branch stays, to be looked at. Raises `Conflict` if others have changed the same
    rows meanwhile; then it is gone.
    """
    name, into = f"{PREFIX}{run}", branch or "main"
    with stores.find(url).opened(write=True) as store:
        for left in _left_behind(store, url):
            _drop(store, left)
        store.branches.create(name, parent=into)
        try:
            with open_parallel(url, branch=name, write=True) as own:
                done = publish(own)
                reach("pipeline: published to a branch")
                if done.commit is not None:
                    look(own)
            if done.commit is not None:
                merged = store.merge(name, into, author=actor)
                with open_parallel(url, branch=branch) as target:
                    seen = target.view(as_of=merged.commit.id if merged.commit else None)
                    done = done._replace(commit=seen.commit)
        except ExpectationError as error:
            raise ExpectationError(error.failed, branch=name) from None
        except BaseException:
            _drop(store, name)
            raise
        _drop(store, name)
    return done


def left_behind(url: str, *, remove: bool = False) -> list[str]:
    """The branches of runs that were killed before they were merged or given up; `remove` deletes them.

    The branch of a run that is alive is none of them, nor one that expectations left for looking at.
    """
    try:
        found_store = stores.find(absolute(url))
    except (NotFound, Invalid):
        return []
    if found_store.model not in (GRAPH, TYPED) or not found_store.offers("branch"):
        return []
    with found_store.opened(write=remove) as store:
        found = _left_behind(store, url)
        for name in found if remove else ():
            _drop(store, name)
    return found


def _left_behind(store: VersionControlled[Any], url: str) -> list[str]:
    runs = [branch.name.removeprefix(PREFIX) for branch in store.branches.list() if branch.name.startswith(PREFIX)]
    return [f"{PREFIX}{run}" for run in runs if state_of(url, run) == "killed"]


def _drop(store: VersionControlled[Any], name: str) -> None:
    with suppress(OntolakeError):
        store.branches.delete(name)
