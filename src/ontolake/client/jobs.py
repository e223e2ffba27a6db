"""Work that a server does as a job: it is started, and asked about until it is done."""

from __future__ import annotations

import time
from typing import Any

from ontolake.client.connection import StoreConnection
from ontolake.client.errors import ServerError
from ontolake.history.wire_errors import rebuild

_FIRST, _LONGEST = 0.02, 2.0
"""Seconds between two questions about a job, at first and at most."""


def run_job(connection: StoreConnection, path: str, body: Any) -> Any:
    """Start a job of a store, wait for its end, and return its result. Raises the error that it ended with."""
    request = connection.transport.request
    job = request("POST", f"{connection.address.path}{path}", body=body).value
    pause = _FIRST
    while job["status"] in ("queued", "running"):
        time.sleep(pause)
        pause = min(_LONGEST, pause * 1.5)
        job = connection.get(f"/jobs/{job['id']}")
    if job["status"] == "done":
        return job["result"]
    problem = job.get("error") or {}
    raise rebuild(problem.get("classes", ()), problem.get("title", ""), problem.get("fields", {})) or ServerError(
        problem.get("title") or "the job failed on the server", 500)
