"""Writing to a graph: loads and deletions over several tables as one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ontolake.server.answers import FORMS, answer, sent_value
from ontolake.server.models import check_model
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.server.words import CommitOut
from ontolake.stores import GRAPH


class GraphStep(msgspec.Struct, forbid_unknown_fields=True):
    """Rows to load into a table, or keys to delete from it."""

    table: str
    load: list[Any] | None = None
    delete: list[Any] | None = None
    mode: Literal["append", "merge", "overwrite"] = "merge"
    cascade: bool = False


class GraphCommitIn(msgspec.Struct, forbid_unknown_fields=True):
    """Steps that become one commit, in their order."""

    steps: list[GraphStep]
    branch: str = "main"
    message: str | None = None


class GraphCommitOut(msgspec.Struct):
    """The commit, None if there was nothing to do; how many rows each step loaded or deleted; the head afterwards."""

    commit: CommitOut | None
    counts: list[int]
    head: str


def _writes(call: Call) -> Iterable[Touch]:
    check_model(call.store, GRAPH)
    return [Touch(TokenScope.WRITE, call.body.branch)]


@route("POST", "/stores/{store}/graph/commit", touches=_writes, body=GraphCommitIn, answers={200: GraphCommitOut},
       forms=FORMS, tag="graph")
def commit_graph(call: Call) -> Any:
    """Load and delete rows as one commit, or not at all."""
    body: GraphCommitIn = call.body
    with call.store.writing() as graph:
        counts = []
        with graph.transaction(branch=body.branch, actor=call.principal.name, message=body.message) as transaction:
            for step in body.steps:
                if step.load is not None:
                    counts.append(transaction.load(step.table, sent_value(call, step.load), mode=step.mode))
                if step.delete is not None:
                    keys = sent_value(call, step.delete)
                    counts.append(transaction.delete(step.table, keys, cascade=step.cascade))
        head = transaction.commit.id if transaction.commit else graph.snapshot(branch=body.branch).commit
        return answer(call, {"commit": transaction.commit, "counts": counts, "head": head})
