"""`onto storage conformance` and `onto versioning conformance`: does a place keep the promises of the seam, and a model
there those of history?"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out, progress
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.suites import CaseResult, OnResult

COLUMNS = (Heading("topic"), Heading("result"), Heading("passed", right=True), Heading("failed", right=True),
           Heading("skipped", right=True), Heading("seconds", right=True))

QUICK = ("killed_at_every_write_step[0] or not (killed_at_every or killed_while or random_histories or flipped "
         "or garbage or cut_short or lost_object or from_each_other or lost_response)")
"""Leaves out what tries everything, and keeps a sample of it."""

Place = Annotated[str, typer.Argument(metavar="URL", help="Where to try it; everything is made in a new place there, "
                                                          "and removed in the end.")]

Only = Annotated[str | None, typer.Option("--only", metavar="WORDS", help="Only tests whose names match, as with "
                                                                          "pytest -k.")]

QUICK_HISTORY = "not (random_histories or killed_at)"


class ModelName(StrEnum):
    """The models that `--model` takes."""

    DOCUMENTS = "documents"
    GRAPH = "graph"
    SQL = "sql"
    TYPED = "typed"


versioning = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Try what models promise of history.")


def conformance(
    url: Place,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the long sweeps: most crashes, random histories, "
                                                        "damage.")] = False,
    only: Only = None,
    json: Json = False,
) -> None:
    """Run the suite that every backend has to pass, and print a table. Ends with 1 if something failed."""
    from ontolake.storage.conformance.run import run

    chosen = " and ".join(f"({words})" for words in (QUICK if quick else None, only) if words)
    _report(Out(json), {"url": url}, lambda on_result: run(url, only=chosen or None, on_result=on_result),
            "do not keep data there")


def conformance_of_history(
    url: Place,
    model: Annotated[ModelName, typer.Option("--model", help="Whose stores are tried there.")],
    quick: Annotated[bool, typer.Option("--quick", help="Leave out random histories and most crashes.")] = False,
    only: Only = None, json: Json = False,
) -> None:
    """Run the suite of branches, merges and ways back that every model has to pass, and print a table.

    Ends with 1 if something failed.
    """
    from ontolake.history.conformance.run import run
    from ontolake.stores import MODELS

    package = next(one for one in MODELS if one.name == model.value).module.rpartition(".")[0]
    chosen = " and ".join(f"({words})" for words in (QUICK_HISTORY if quick else None, only) if words)
    _report(Out(json), {"url": url, "model": model.value},
            lambda on_result: run(f"{package}.conformance", url, only=chosen or None, on_result=on_result),
            "its history there is not to be trusted")


def _report(
    out: Out, head: dict[str, Any], run: Callable[[OnResult], list[CaseResult]], verdict: str
) -> None:  # fmt: skip
    """Run a suite with a bar, and print its results. Ends with 1 if something failed."""
    json, started, count = out.json, time.perf_counter(), 0
    with progress(json) as advance, _interruptible() as check:

        def tell(_: CaseResult) -> None:
            nonlocal count
            check()
            count += 1
            advance("tests", count, None)

        results = run(tell)
    seconds, topics = time.perf_counter() - started, _by_topic(results)
    failures = [{"topic": r.topic, "test": r.test, "message": r.message} for r in results if r.outcome == "failed"]
    if json:
        ok = not failures
        out.document({**head, "ok": ok, "seconds": round(seconds, 3), "topics": topics, "failures": failures})
    else:
        out.table(COLUMNS, [(t["topic"], "FAILED" if t["failed"] else "ok" if t["passed"] else "-", t["passed"],
                             t["failed"], t["skipped"], f"{t['seconds']:.1f}") for t in topics])
        for failure in failures:
            out.say(f"FAILED {failure['topic']}: {_spelt(failure['test'])}")
            for line in _gist(failure["message"]):
                out.say(f"  {line}")
        if failures:
            out.say(f"{len(failures)} of {len(results)} tests failed, in {seconds:.1f} s: {verdict}")
        else:
            out.say(f"{len(results)} tests, none failed, in {seconds:.1f} s")
    if failures:
        raise typer.Exit(ExitCode.GENERAL)


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Ctrl-C ends the block, whatever a test that was struck by it made of it, and at the next `check()` at the latest.

    On a terminal the processes of a test are struck too, so the first sign of it may be that they are gone.
    """
    struck = False

    def strike(*_: object) -> None:
        nonlocal struck
        struck = True
        raise KeyboardInterrupt

    def check() -> None:
        if struck:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, strike)
    try:
        yield check
    except Exception:
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    check()


def _by_topic(results: list[CaseResult]) -> list[dict[str, Any]]:
    """Counts and seconds of each topic, the numbered promises first."""
    topics: dict[str, dict[str, Any]] = {}
    for result in results:
        counts = topics.setdefault(result.topic, {"topic": result.topic, "passed": 0, "failed": 0, "skipped": 0,
                                                  "seconds": 0.0})
        counts[result.outcome] += 1
        counts["seconds"] = round(counts["seconds"] + result.seconds, 3)
    return sorted(topics.values(), key=lambda counts: (not re.match(r"C\d", counts["topic"]), counts["topic"]))


def _gist(message: str) -> list[str]:
    """The lines of a message that say most; `--json` has it whole."""
    lines = message.splitlines()
    return lines[-1:] if "Traceback (most recent call last)" in message else lines[:12]


def _spelt(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


versioning.command("conformance")(conformance_of_history)


@versioning.callback()
def _group() -> None:
    """Try what models promise of history."""
