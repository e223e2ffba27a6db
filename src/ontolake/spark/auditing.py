"""Write, audit, publish: on a graph a run can go to a branch of its own, which is merged once all is as expected."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ontolake.errors import OntolakeError
from ontolake.faults import reach
from ontolake.parallel import Parallel, Published, open_parallel
from ontolake.spark.errors import ExpectationError, PipelineError

if TYPE_CHECKING:
    from ontolake.graph import Graph


def holds_graph(store: Parallel | None) -> bool:
    """Whether a store is a graph, whose tables are nodes and edges."""
    return store is not None and any(name.startswith("node/") for name in store.tables())


def check_auditable(store: Parallel | None, url: str) -> None:
    """Raise `PipelineError` for a store that cannot merge branches."""
    if store is not None and not holds_graph(store):
        raise PipelineError(f"{url!r} is not a graph: only graphs merge what was published to a branch",
                            hint="without --audit the expectations are seen to before anything is published")


def audited(
    url: str, branch: str | None, run: str, actor: str, *, publish: Callable[[Parallel], Published],
    look: Callable[[Parallel], None],
) -> Published:  # fmt: skip
    """Publish to a branch called after the run, look at it there, and merge it.

    Raises what `look` raises: then the branch stays, to be looked at. Raises `Conflict` if others have changed the same
    rows meanwhile; then it is gone.
    """
    from ontolake.graph import Graph

    name, into = f"run-{run}", branch or "main"
    with Graph.open(url) as graph:
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


def _drop(graph: Graph, name: str) -> None:
    with suppress(OntolakeError):
        graph.branches.delete(name)
