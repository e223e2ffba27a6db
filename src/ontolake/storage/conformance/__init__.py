"""The conformance suite: what every backend of the seam has to prove, as a pytest class to subclass.

    class TestMyBackend(StorageConformance):
        @pytest.fixture
        def fresh(self, tmp_path):
            numbers = itertools.count()
            return lambda: f"my-scheme://{tmp_path}/{next(numbers)}"

pytest and Hypothesis are needed only where the suite itself is used, so they load with it.

`suite` is all of it, `run` runs it from a program, `base` has settings and fixtures. Its parts, a module a promise:
`branches`, `concurrency`, `crashes`, `damage`, `durability`, `fencing`, `histories`, `inputs`, `order`, `records`,
`requests`, `retention`, `snapshots`, `takeover`. Their means: `oracle` and `observe` say what is right, `workload`
makes steps, `tasks` are done by other processes, `raw` gives bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontolake.storage.conformance.suite import RawFile, RawObjects, StorageConformance

__all__ = ["RawFile", "RawObjects", "StorageConformance"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ontolake.storage.conformance import suite

        return getattr(suite, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
