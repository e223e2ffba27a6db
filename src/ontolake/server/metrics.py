"""What `/metrics` says, in the words of Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ontolake import __version__

if TYPE_CHECKING:
    from ontolake.server.handles import ServedStore

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counters of one server."""

    def __init__(self, stores: Iterable[ServedStore]) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("ontolake_requests", "Requests that were answered", ["method", "route", "status"],
                                registry=registry)  # fmt: skip
        self.seconds = Histogram("ontolake_request_seconds", "How long requests took", ["route"], buckets=_SECONDS,
                                 registry=registry)  # fmt: skip
        self.in_flight = Gauge("ontolake_requests_in_flight", "Requests that are being answered", registry=registry)
        self.sessions = Gauge("ontolake_sessions", "Open sockets and streams of events", ["kind"], registry=registry)
        self._commits = Counter("ontolake_commits", "Commits that requests have made", ["store"], registry=registry)
        self._conflicts = Counter("ontolake_conflicts", "Requests that conflicted", ["store"], registry=registry)
        self._groups = Histogram("ontolake_group_commit_size", "Requests that shared a commit", ["store"],
                                 buckets=_SIZES, registry=registry)  # fmt: skip
        self._by_request: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        info = Gauge("ontolake_info", "The version that runs", ["version"], registry=registry)
        info.labels(__version__).set(1)
        registry.register(_Below(stores))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        found = self._by_request.get((method, route, status))
        if found is None:
            found = self.requests.labels(method, route, str(status)), self.seconds.labels(route)
            self._by_request[method, route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def committed(self, store: str, requests: int = 1) -> None:
        """A store has one more commit, in which several requests may share."""
        self._commits.labels(store).inc()
        self._groups.labels(store).observe(requests)

    def conflicted(self, store: str) -> None:
        """A request could not be done because of what others did."""
        self._conflicts.labels(store).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)


class _Below(Collector):
    """What the layers below count."""

    def __init__(self, stores: Iterable[ServedStore]) -> None:
        self._stores = stores

    def collect(self) -> list[Metric]:
        from ontolake.objects.requests import REQUESTS

        objects = CounterMetricFamily("ontolake_object_requests", "Requests to object stores", labels=["operation"])
        for operation, count in sorted(REQUESTS.totals().items()):
            objects.add_metric([operation], count)
        cache = GaugeMetricFamily("ontolake_cache_bytes", "Bytes of decoded columns in memory", labels=["store"])
        decoded = CounterMetricFamily("ontolake_cache_misses", "Rows that no cache had, by column", labels=["store"])
        handles = GaugeMetricFamily("ontolake_handles", "Open handles", labels=["store"])
        for store in self._stores:
            size, rows = store.cached()
            cache.add_metric([store.name], size)
            decoded.add_metric([store.name], rows)
            handles.add_metric([store.name], store.handle_count())
        return [objects, cache, decoded, handles, *_batches()]


def _batches() -> list[Metric]:
    """How SQL transactions share commits, once there were any. Importing SQL for nothing would take memory."""
    queue = sys.modules.get("ontolake.sql.writer_queue")
    if queue is None:
        return []
    return [CounterMetricFamily("ontolake_sql_batches", "Commits that SQL transactions shared",
                                value=queue.BATCHES.batches),
            CounterMetricFamily("ontolake_sql_transactions", "SQL transactions in them",
                                value=queue.BATCHES.transactions)]  # fmt: skip
