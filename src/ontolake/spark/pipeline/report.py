"""What a run of a pipeline did: kept beside the store as JSON and HTML, listed by `history`."""

from __future__ import annotations

import html
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ontolake.errors import NotFound
from ontolake.parallel import beside

if TYPE_CHECKING:
    from ontolake.objects import ObjectStore

SAMPLE = 20
ALIVE = "alive"
"""The object by which a run says that it is alive."""
SILENT = 600.0
"""A run that has said nothing for so many seconds is no longer alive."""


@dataclass
class TableReport:
    """What became of the rows for one table."""

    table: str
    source: str
    rows: int = 0
    rejected: int = 0
    inserts: int = 0
    updates: int = 0
    unchanged: int = 0
    vanished: int | None = None
    """Rows of the store that the source no longer has; None if nobody looked."""
    deleted: int | None = None
    """Of these, those that were deleted, or of a dry run would be; None if none are to be."""
    written: int = 0
    note: str | None = None
    """What else is to be known."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many rejected rows have each reason; a row with two of them counts under both."""

    @property
    def counts(self) -> dict[str, int]:
        """What is told of them in the commit."""
        names = ("rows", "rejected", "inserts", "updates", "unchanged", "vanished", "deleted")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class Report:
    """A run: what was read, rejected, changed and published."""

    run: str
    pipeline: str
    store: str
    branch: str | None
    started: str
    state: str = "running"
    """`running`, `published`, `unchanged`, `dry run`, or `failed`; `killed` if its process is no longer there."""
    commit: int | None = None
    base: int = 0
    seconds: float = 0.0
    error: str | None = None
    tables: list[TableReport] = field(default_factory=list)
    sources: dict[str, Any] = field(default_factory=dict)
    expectations: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    """Some of what others have changed meanwhile, so that the branch of the run could not be merged."""
    quarantine: str | None = None
    report: str | None = None
    process: str = ""

    @property
    def rejected(self) -> int:
        return sum(table.rejected for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    def add_deleted(self, deleted: Mapping[str, int]) -> None:
        """Tell how many rows were deleted of each table; of relations that went with their ends, too."""
        known = {one.table: one for one in self.tables}
        for table, count in deleted.items():
            if table not in known and count:
                self.tables.append(TableReport(table, "", deleted=count, note="deleted with their ends"))
            elif table in known and (count or known[table].deleted is not None):
                known[table].deleted = count

    def examples(self, count: int = 3) -> list[str]:
        """Some rejected rows, each with where it is and what is wrong with it."""
        return [_place(one) + one["reason"] for one in self.samples[:count]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _place(sample: dict[str, Any]) -> str:
    file = (sample["file"] or "").rpartition("/")[2] or sample["source"]
    line = f", line {sample['line']:,}" if sample["line"] else ""
    return f"{file}{line}, for {sample['table']}: "


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def work_store(url: str) -> Iterator[ObjectStore]:
    """The objects beside a store."""
    from ontolake.objects import open_store

    store = open_store(beside(url))
    try:
        yield store
    finally:
        store.close()


def begin(url: str, report: Report) -> None:
    """Let others see that a run goes on, and by which process."""
    report.process = f"{socket.gethostname()}:{os.getpid()}"
    with work_store(url) as store:
        _put(store, report)


def keep(url: str, report: Report) -> None:
    """Store a report as JSON and HTML."""
    place = beside(url)
    report.report = f"{place.removeprefix('file://')}/{report.run}/report.html"
    with work_store(url) as store:
        store.put(f"{report.run}/report.html", page(report).encode())
        _put(store, report)


def _put(store: ObjectStore, report: Report) -> None:
    store.put(f"{report.run}/run.json", json.dumps(report.as_dict(), indent=1, default=str).encode())


def history(url: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The runs on a store, newest first, as they were kept."""
    with work_store(url) as store:
        listed = {info.key: info.modified for info in store.list()}
        keys = sorted((key for key in listed if key.endswith("/run.json")), reverse=True)
        return [_seen(json.loads(store.get(key).data), listed.get(f"{key.removesuffix('run.json')}{ALIVE}"))
                for key in keys[:limit]]


def state_of(url: str, run: str) -> str | None:
    """What became of a run; None if nothing is known of it."""
    with work_store(url) as store:
        listed = {info.key: info.modified for info in store.list(f"{run}/")}
        if f"{run}/run.json" not in listed:
            return None
        return str(_seen(json.loads(store.get(f"{run}/run.json").data), listed.get(f"{run}/{ALIVE}"))["state"])


def _seen(run: dict[str, Any], sign: float | None) -> dict[str, Any]:
    """A run as it looks from here, with the time of its last sign of life. One that goes on was killed if its process
    is not on this machine any more, or, on another one, has been silent for long."""
    if run["state"] == "running":
        host, _, process = run.get("process", "").rpartition(":")
        if host != socket.gethostname():
            gone = sign is None or sign < time.time() - SILENT
        else:
            gone = not _running(int(process))
        run["state"] = "killed" if gone else "running"
    return run


def _running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, and alive
        return True
    return True


def status(url: str) -> dict[str, Any]:
    """The newest run. Raises `NotFound` if there is none."""
    found = history(url, limit=1)
    if not found:
        raise NotFound(f"no pipeline has run on {url!r}", hint="onto pipeline run FILE --store URL")
    return found[0]


_STYLE = """\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;word-break:break-all}
.published,.ok{color:#176f2c}.failed{color:#b3261e}"""


def page(report: Report) -> str:
    """The report as one HTML page that needs nothing else."""
    facts = {"run": report.run, "store": report.store, "branch": report.branch or "main", "started": report.started,
             "took": f"{report.seconds:.1f} s", "read at commit": report.base, "commit": report.commit or "none"}
    tables = [[one.table, one.source, one.rows, one.rejected, one.inserts, one.updates, one.unchanged,
               "" if one.vanished is None else one.vanished, "" if one.deleted is None else one.deleted, one.written,
               one.note or ""] for one in report.tables]
    lineage = [[name, one.get("path") or one.get("format"), one.get("files", ""), one.get("bytes", ""),
                ", ".join(table.table for table in report.tables if table.source == name),
                ", ".join(one.get("unused", ())), one.get("sha256", "")[:16]] for name, one in report.sources.items()]
    samples = [[one["source"], one["file"] or "", one["line"] or "", one["table"], one["reason"], one["raw"]]
               for one in report.samples]
    reasons = [[one.table, reason, count] for one in report.tables for reason, count in one.reasons.items()]
    told = [[one["name"], "ok" if one["ok"] else "failed", one["found"]] for one in report.expectations]
    parts = [
        f"<h1>{_text(report.pipeline)}: <span class='{report.state.split()[0]}'>{_text(report.state)}</span></h1>",
        f"<p class='failed'>{_text(report.error)}</p>" if report.error else "",
        _table(["", ""], [[name, value] for name, value in facts.items()]),
        "<h2>Tables</h2>", _table(["table", "source", "rows", "rejected", "inserts", "updates", "unchanged",
                                   "vanished", "deleted", "written", ""], tables),
        "<h2>Where the rows come from</h2>", _table(["source", "path", "files", "bytes", "goes to", "unused columns",
                                                    "fingerprint"], lineage),
        "<h2>Conflicts</h2>" + _table(["conflict"], [[one] for one in report.conflicts]) if report.conflicts else "",
        "<h2>Expectations</h2>" + _table(["expectation", "", "found"], told) if told else "",
        f"<h2>Rejected rows ({report.rejected})</h2>" + _table(["table", "reason", "rows"], reasons)
        + "<h2>Some of them</h2>" + _table(["source", "file", "line", "table", "reason", "row"], samples)
        if samples else "",
        "<h2>Steps</h2>", _table(["step", "seconds"], [[one["step"], f"{one['seconds']:.2f}"] for one in report.steps]),
    ]  # fmt: skip
    body = "\n".join(part for part in parts if part)
    return (f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{_text(report.pipeline)} {report.run}</title>"
            f"<style>{_STYLE}</style><body>{body}</body></html>")


def _text(value: Any) -> str:
    return html.escape(str(value))


def _table(titles: list[str], rows: list[list[Any]]) -> str:
    def cell(value: Any, tag: str) -> str:
        number = " class='n'" if isinstance(value, int) else ""
        return f"<{tag}{number}>{_text(f'{value:,}' if isinstance(value, int) else value)}</{tag}>"

    head = "".join(cell(title, "th") for title in titles) if any(titles) else ""
    lines = "".join(f"<tr>{''.join(cell(value, 'td') for value in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{lines}</table>"
