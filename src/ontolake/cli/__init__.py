"""The command `onto …`. An error ends it with a line or two on standard error and its own exit code, never a traceback.

Commands import what they need when they run, so that starting up stays quick.

One module a group of commands, called like it: `graph`, `docs`, `sql`, `storage` (with `storage_branch` and
`storage_sql`), `query`, `events`, `schema`, `spark`, `pipeline`. Of any store: `info`, `log`, `diff`, `branch`, `tag`,
`merge` with its relatives, `rows` (blame, erase), `copy`, and `verbs` (export, verify, gc). Of typed stores: `admin`
(init, migrate), `commits`, `transfer` (import, export), `upkeep` (compact, index, convert). `conformance` runs suites,
`version` names versions; `serve`, `pg` and `token` are for servers; `common/` has what commands share.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import typer

from ontolake.cli.admin import init, migrate
from ontolake.cli.branch import app as branch
from ontolake.cli.commits import app as commits
from ontolake.cli.common.output import ErrorReport, say_error
from ontolake.cli.conformance import versioning
from ontolake.cli.copy import copy
from ontolake.cli.diff import diff
from ontolake.cli.docs import app as docs
from ontolake.cli.events import app as events
from ontolake.cli.graph import app as graph
from ontolake.cli.info import info
from ontolake.cli.log import log
from ontolake.cli.merge import cherry_pick, merge, restore, revert, undo
from ontolake.cli.pg import pg
from ontolake.cli.pipeline import app as pipeline
from ontolake.cli.query import app as query
from ontolake.cli.rows import blame, erase
from ontolake.cli.schema import app as schema
from ontolake.cli.serve import serve
from ontolake.cli.spark import app as spark
from ontolake.cli.sql import sql
from ontolake.cli.storage import app as storage
from ontolake.cli.tag import app as tag
from ontolake.cli.token import app as token
from ontolake.cli.transfer import import_lines
from ontolake.cli.upkeep import compact, convert
from ontolake.cli.upkeep import index as object_index
from ontolake.cli.verbs import export, gc, verify
from ontolake.cli.version import show_version, version
from ontolake.errors import ExitCode, MissingExtra, OntolakeError

_BIGGEST = 1 << 63

app = typer.Typer(
    name="onto", help="Data that keeps its history, on a file or a bucket.", no_args_is_help=True,
    rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
app.callback()(show_version)
app.command("version")(version)
app.command("info")(info)
app.command("log")(log)
app.add_typer(branch, name="branch")
app.add_typer(tag, name="tag")
app.command("diff")(diff)
app.command("merge")(merge)
app.command("revert")(revert)
app.command("cherry-pick")(cherry_pick)
app.command("restore")(restore)
app.command("undo")(undo)
app.command("blame")(blame)
app.command("erase")(erase)
app.command("copy")(copy)
app.command("export")(export)
app.command("verify")(verify)
app.command("gc")(gc)
app.command("init")(init)
app.command("import")(import_lines)
app.add_typer(query, name="query")
app.add_typer(commits, name="commits")
app.add_typer(schema, name="schema")
app.command("migrate")(migrate)
app.add_typer(events, name="events")
app.command("compact")(compact)
app.add_typer(object_index, name="index")
app.command("convert")(convert)
app.add_typer(storage, name="storage")
app.add_typer(versioning, name="versioning")
app.add_typer(docs, name="docs")
app.add_typer(pipeline, name="pipeline")
app.add_typer(spark, name="spark")
app.add_typer(graph, name="graph")
app.command("sql")(sql)
app.command("serve")(serve)
app.command("pg")(pg)
app.add_typer(token, name="token")

# A wrong option or argument, from whichever click typer brings along.
_Usage: type[Exception] = typer.BadParameter.__mro__[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    as_json = "--json" in given
    try:
        code = _run(given, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return ExitCode.PIPE_CLOSED
    except OSError as error:
        code = say_error(_refused(error), as_json=as_json)
        try:
            sys.stdout.flush()
        except OSError:
            _give_up_output()
    return code


def _give_up_output() -> None:
    """Nobody takes our output any more. The interpreter would complain of that once more when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@cache
def _command() -> Any:
    """What `app` describes, worked out once: it takes longer than most commands do."""
    return typer.main.get_command(app)


def _run(arguments: list[str], as_json: bool) -> int:
    if "_ONTO_COMPLETE" in os.environ:
        app(arguments, prog_name="onto")
    try:
        command = _command()
        with command.make_context("onto", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except OntolakeError as error:
        return say_error(ErrorReport(type(error).__name__, error.message, error.hint, error.exit_code), as_json=as_json)
    except _Usage as error:
        return _usage(error, as_json)
    except OSError:
        raise
    except Exception as error:
        unusable = _unusable(error, arguments)
        if unusable is not None:
            return say_error(ErrorReport("Usage", unusable, "see onto --help", ExitCode.USAGE), as_json=as_json)
        told = _missing(error, arguments)
        if told is not None:
            return say_error(ErrorReport(type(told).__name__, told.message, told.hint, told.exit_code), as_json=as_json)
        if os.environ.get("ONTO_TRACEBACK"):
            raise
        what = f"this should not have happened: {type(error).__name__}: {error}"
        return say_error(ErrorReport(type(error).__name__, what, "set ONTO_TRACEBACK=1 to see where", ExitCode.GENERAL),
                         as_json=as_json)
    return ExitCode.OK


def _refused(error: OSError) -> ErrorReport:
    """What the operating system refuses, and what is in the way if that can be seen."""
    from ontolake.folders import obstacle

    path = error.filename
    told = obstacle(path) if isinstance(path, str) and path and not os.path.lexists(path) else None
    if told is not None:
        return ErrorReport(type(told).__name__, told.message, told.hint, told.exit_code)
    text = str(error) if error.strerror is None or path is None else f"{path}: {error.strerror}"
    return ErrorReport("OSError", text, None, ExitCode.GENERAL)


def _unusable(error: Exception, arguments: list[str]) -> str | None:
    """What is wrong with an argument that nothing below can take: bytes that are not text, a number too big for any
    column. None if the error is about something else."""
    if isinstance(error, UnicodeEncodeError):
        bad = next((one for one in arguments if any("\ud800" <= letter <= "\udfff" for letter in one)), None)
        return None if bad is None else f"the argument {bad!a} is not UTF-8 text"
    if isinstance(error, OverflowError | ValueError):
        numbers = [int(one) for text in arguments for one in re.findall(r"(?:^|=)(-?\d{1,400})$", text)]
        big = max(numbers, key=abs, default=0)
        if abs(big) >= _BIGGEST or (isinstance(error, OverflowError) and numbers):
            return f"the number {big} is too big"
    return None


def _missing(error: Exception, arguments: list[str]) -> MissingExtra | None:
    """What to say of a package that a command needs and that is not installed."""
    from ontolake.extras import missing

    command = next((one for one in arguments if not one.startswith("-")), "")
    return missing(error, command, f"onto {command}") or missing(error, None, f"onto {command}")


def _usage(error: Exception, as_json: bool) -> int:
    """Say what was wrong with the command line. One that asks for nothing is answered with the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ExitCode.USAGE  # the help was printed when the error was made
    message, context = str(error.format_message()), getattr(error, "ctx", None)  # type: ignore[attr-defined]
    command = context.command_path if context is not None else "onto"
    return say_error(ErrorReport("Usage", message, f"see {command} --help", ExitCode.USAGE), as_json=as_json)
