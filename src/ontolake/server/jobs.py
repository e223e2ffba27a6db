"""Work that takes longer than a request: it is started, runs in a thread, and can be asked about by its id."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from ontolake.errors import OntolakeError
from ontolake.history import wire_errors
from ontolake.server.problems import RefusedError, problem_of

_MOST = 1000
"""How many jobs are remembered."""


class Job(msgspec.Struct):
    """A job: `status` is `running`, `done` or `failed`. `result` is what it found, `error` the problem that it met."""

    id: str
    kind: str
    store: str
    status: str
    started: str
    ended: str | None = None
    result: Any = None
    error: Any = None


class Jobs:
    """The jobs of a server."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, kind: str, store: str, run: Callable[[], Any]) -> Job:
        """Run something in a thread of its own. Raises `RefusedError` if the store has such a job already."""
        with self._lock:
            if any(one.status == "running" and (one.kind, one.store) == (kind, store) for one in self._jobs.values()):
                raise RefusedError(409, f"a job to {kind} {store!r} is running", hint="wait for its end")
            job = Job(uuid.uuid4().hex, kind, store, "running", _now())
            self._jobs[job.id] = job
            while len(self._jobs) > _MOST:
                oldest = next((one.id for one in self._jobs.values() if one.status != "running"), None)
                if oldest is None:
                    break
                del self._jobs[oldest]
        threading.Thread(target=self._run, args=(job, run), name=f"ontolake-{kind}", daemon=True).start()
        return job

    def _run(self, job: Job, run: Callable[[], Any]) -> None:
        try:
            job.result = run()
            job.ended, job.status = _now(), "done"
        except Exception as error:
            problem = problem_of(error, job.id)
            job.error = {"type": problem.type, "title": problem.title, "hint": problem.hint}
            if isinstance(error, OntolakeError):
                job.error |= {"classes": wire_errors.classes_of(error), "fields": wire_errors.fields_of(error)}
            job.ended, job.status = _now(), "failed"

    def get(self, store: str, id: str) -> Job:
        """A job of a store. Raises `RefusedError` with 404."""
        with self._lock:
            job = self._jobs.get(id)
        if job is None or job.store != store:
            raise RefusedError(404, f"there is no job {id!r} of {store!r}", hint="jobs end with the server")
        return job


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
