"""What all commands have in common: how they start, how errors look, and what a terminal gets to see."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ontolake
from ontolake.storage import STORAGE_TRAIT_VERSION, WalRecord, open_storage
from ontolake.storage.medium import FORMAT_VERSION

COMMANDS = [
    ("info",), ("storage", "info"), ("storage", "wal"), ("storage", "branch"), ("storage", "branch", "list"),
    ("storage", "compact"), ("storage", "verify"),
]  # fmt: skip
PROGRAM = Path(sys.executable).parent / "onto"
ONE = pytest.mark.parametrize("url", ["file"], indirect=True)


def test_version_tells_all_versions(onto, program) -> None:
    versions = program("version", "--json").document
    assert versions == {
        "ontolake": ontolake.__version__,
        "storage_trait": STORAGE_TRAIT_VERSION,
        "page_format": FORMAT_VERSION,
        "internal_schema": 4,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    plain = onto("version")
    assert plain.code == 0
    assert f"ontolake:        {ontolake.__version__}\n" in plain.out


def test_starting_up_loads_nothing_heavy() -> None:
    code = (
        "import sys; from ontolake.cli import main; code = main(['version']);"
        "heavy = {'numpy', 'msgspec', 'obstore', 'apsw', 'ontolake.storage', 'ontolake.objects', 'ontolake.history'};"
        "heavy &= set(sys.modules);"
        "sys.exit(' '.join(sorted(heavy)) or code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"loaded: {done.stderr}"


@ONE
def test_the_package_runs_as_a_module(url: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ontolake", "info", url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "a page store" in done.stdout


def test_without_a_command_the_help_is_shown(onto) -> None:
    done = onto()
    assert done.code == 2
    assert done.out.count("Usage:") == 1
    assert onto("--help").code == onto("storage", "wal", "-h").code == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_where_nothing_is_every_command_says_so_and_makes_nothing(onto, nothing: str, command: tuple[str, ...]) -> None:
    done = onto(*command, nothing)
    assert (done.code, done.out) == (5, "")
    error, hint = done.err.splitlines()
    assert error == f"error: there is nothing at {nothing!r}"
    assert hint.startswith("hint: ")
    assert not Path(nothing.removeprefix("file://")).exists()
    lake = f"{nothing.removesuffix('.db')}/"
    assert onto(*command, lake).code == 5
    assert not Path(lake.removeprefix("file://")).exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_errors_are_json_when_the_answer_would_be(onto, nothing: str, command: tuple[str, ...]) -> None:
    done = onto(*command, nothing, "--json")
    assert (done.code, done.out) == (5, "")
    assert done.error.keys() == {"type", "message", "hint", "exit_code"}
    assert (done.error["type"], done.error["exit_code"]) == ("NotFound", 5)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("where", "words"),
    [("ftp://host/x", "'ftp'"), ("s3://", "bucket"), ("shop", "could be"), ("file:///x?y=z", "query"), ("", "empty")],
)
def test_a_malformed_url_is_a_usage_error(onto, command: tuple[str, ...], where: str, words: str) -> None:
    done = onto(*command, where)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(onto, tmp_path: Path, command: tuple[str, ...]) -> None:
    diary = tmp_path / "diary.db"
    diary.write_text("Dear diary")
    done = onto(*command, f"file://{diary}")
    assert (done.code, done.out) == (2, "")
    assert "is a text file, not a store" in done.err
    assert diary.read_text() == "Dear diary"


@pytest.mark.parametrize(
    "arguments",
    [
        ("frob",), ("storage", "frob"), ("info", "a.db", "b.db"), ("version", "--frob"),
        ("storage", "wal", "a.db", "--after", "x"), ("storage", "wal", "a.db", "--limit", "-1"),
        ("storage", "branch", "create", "a.db"), ("storage", "compact", "a.db", "--floor"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_is_two_lines_and_the_code_2(onto, arguments: tuple[str, ...]) -> None:
    done = onto(*arguments)
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: see onto")
    assert onto(*arguments, "--json").error["type"] == "Usage"


def test_memory_belongs_to_the_process_that_has_it(onto) -> None:
    done = onto("storage", "info", "memory://somewhere")
    assert done.code == 5
    assert "lives in the process" in done.err


@pytest.mark.slow
def test_a_bug_is_told_in_two_lines_too() -> None:
    code = "from ontolake.cli import app, main; app.command('divide')(lambda: 1 / 0); exit(main(['divide']))"
    command, quiet = [sys.executable, "-c", code], {**os.environ, "ONTO_TRACEBACK": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: this should not have happened: ZeroDivisionError: division by zero",
        "hint: set ONTO_TRACEBACK=1 to see where",
    ]
    loud = {**os.environ, "ONTO_TRACEBACK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=loud, check=False)
    assert "Traceback" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PROGRAM, "version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: [Errno 28] No space left on device"]


@pytest.mark.slow
def test_closed_streams_are_no_trouble() -> None:
    done = subprocess.run(["bash", "-c", f"{PROGRAM} version >&-"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def write_notes(where: str, count: int) -> None:
    with open_storage(where) as store:
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(b"note")] * count)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_not_an_error(tmp_path: Path) -> None:
    where = f"file://{tmp_path}/long.db"
    write_notes(where, 20_000)
    with subprocess.Popen([PROGRAM, "storage", "wal", where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
                          ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(200) == 141


@pytest.mark.slow
@ONE
def test_ctrl_c_ends_following_quietly(url: str) -> None:
    with subprocess.Popen([PROGRAM, "storage", "wal", url, "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
                          ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines[3] == b"3\t-\t6\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == 130
        assert process.stderr.read() == b""


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a command writes to a terminal, escape sequences included."""
    leader, follower = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen([PROGRAM, *arguments], stdin=follower, stdout=follower, stderr=follower, close_fds=True,
                          env={**clean, "TERM": "xterm", "COLUMNS": "100", **variables}):
        os.close(follower)
        pieces = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other side has gone
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(leader)
    return b"".join(pieces).decode()


@pytest.mark.slow
@ONE
def test_a_terminal_gets_tables_and_colour_unless_it_wants_none(url: str) -> None:
    table = on_a_terminal("storage", "branch", url)
    assert "───" in table
    assert "\t" not in table
    assert "\x1b[36m" in on_a_terminal("version")
    plain = on_a_terminal("version", NO_COLOR="1")
    assert ontolake.__version__ in plain
    assert "\x1b[36m" not in plain
    assert "\x1b[1;31merror:\x1b[0m" in on_a_terminal("info", "nowhere.db")


def test_the_shell_completes_commands() -> None:
    variables = {**os.environ, "_ONTO_COMPLETE": "complete_bash", "COMP_WORDS": "onto storage co", "COMP_CWORD": "2"}
    done = subprocess.run([PROGRAM], capture_output=True, text=True, env=variables, check=False)
    assert {"compact", "conformance"} <= set(done.stdout.split())
