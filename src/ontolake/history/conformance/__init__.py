"""The conformance suite of history: what every model has to prove on every layout, as a pytest class to subclass.

    class TestMyStores(VersioningConformance):
        adapter = MyAdapter

        @pytest.fixture
        def fresh(self, tmp_path):
            numbers = itertools.count()
            return lambda: f"{tmp_path}/{next(numbers)}.db"

`adapter` is what a model fills in. Cases are in `linear`, `branches` (and tags), `merges`, `undo`, `bad_input`,
`processes` and `machine`, on `base`, all in one class of `suite`. `workload` has the steps of histories, played on a
store and on `oracle`; `tasks` are what other processes do. `run` runs the suite from a program.

pytest and Hypothesis are needed only where the suite itself is used, so they load with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontolake.history.conformance.adapter import VersioningAdapter

if TYPE_CHECKING:
    from ontolake.history.conformance.suite import VersioningConformance

__all__ = ["VersioningAdapter", "VersioningConformance"]


def __getattr__(name: str) -> Any:
    if name == "VersioningConformance":
        from ontolake.history.conformance.suite import VersioningConformance

        return VersioningConformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
