"""Upkeep as jobs: verify a store, and collect what nobody can reach."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from ontolake.server.answers import FORMS, answer
from ontolake.server.jobs import Job
from ontolake.server.routes import API, Call, administers, route


class GcIn(msgspec.Struct, forbid_unknown_fields=True):
    """Whether garbage is only counted."""

    dry_run: bool = True


@route("POST", "/stores/{store}/verify", touches=administers, answers={202: Job}, forms=FORMS, tag="upkeep")
def verify(call: Call) -> Any:
    """Start reading everything that is stored; the result of the job has all damage."""
    served = call.store

    def run() -> Any:
        with served.reading() as store:
            return {"damage": list(store.verify())}

    return _started(call, "verify", run)


@route("POST", "/stores/{store}/gc", touches=administers, body=GcIn, answers={202: Job}, forms=FORMS, tag="upkeep")
def gc(call: Call) -> Any:
    """Start looking for what no commit that is kept needs, and removing it unless it is a dry run."""
    served, dry_run = call.store, call.body.dry_run

    def run() -> Any:
        with served.reading() if dry_run else served.writing() as store:
            return {"garbage": store.gc(dry_run=dry_run)}

    return _started(call, "gc", run)


def _started(call: Call, kind: str, run: Any) -> Any:
    job = call.server.jobs.start(kind, call.store.name, run)
    address = f"{API}/stores/{quote(call.store.name, safe='')}/jobs/{job.id}"
    return answer(call, msgspec.structs.asdict(job), 202, {"location": address})


@route("GET", "/stores/{store}/jobs/{id}", touches=administers, answers={200: Job}, forms=FORMS, tag="upkeep")
def show_job(call: Call) -> Any:
    """A job: whether it runs, and what came of it."""
    return answer(call, msgspec.structs.asdict(call.server.jobs.get(call.store.name, call.path["id"])))
