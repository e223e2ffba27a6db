"""A run says again and again that it is alive, so that nobody takes what it has staged for left over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ontolake.errors import OntolakeError
from ontolake.spark.pipeline.report import ALIVE, now, work_store

EVERY = 30.0
"""Seconds between two signs of life; `report.SILENT` is how long there may be none."""


@contextmanager
def alive(url: str, run: str) -> Iterator[None]:
    """Leave signs of life beside a store for as long as the block takes, and none after it.

    If they cannot be written for a while, others may clean up: the run then finds that something is missing when it
    publishes, and publishes nothing.
    """
    over = threading.Event()
    with work_store(url) as store:
        store.put(f"{run}/{ALIVE}", now().encode())

        def go_on() -> None:
            while not over.wait(EVERY):
                with suppress(OntolakeError):
                    store.put(f"{run}/{ALIVE}", now().encode())

        thread = threading.Thread(target=go_on, name=f"alive {run}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with suppress(OntolakeError):
                store.delete([f"{run}/{ALIVE}"])
