"""Tables on a terminal: a row on each line, whatever its values are and however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marking import examples
from rich.cells import cell_len

from ontolake.cli.common.output import Heading, Out, cut

LONG = "goes on and on " * 20
COLUMNS = (Heading("commit", 8, right=True), Heading("time", 19, whole=True), Heading("author", 16, most=16),
           Heading("message", 40), Heading("changes"))
ROWS = [(12, "2026-11-17 08:43:55", "a" * 32, LONG, LONG), (3, "2026-11-17 08:43:55", None, "短い文" * 30, "t +1")]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines that a terminal of some width gets."""

    def run(how: Callable[[Out], None], width: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        out = Out(False)
        out.terminal = True
        how(out)
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("width", [70, 80, 120, 200])
def test_a_row_fits_on_a_line(shown: Any, width: int) -> None:
    for lines in (shown(lambda out: out.stream(COLUMNS, ROWS), width),
                  [line for line in shown(lambda out: out.table(COLUMNS, ROWS), width) if line.strip(" ─")]):
        assert len(lines) == 3
        assert max(cell_len(line.rstrip()) for line in lines) <= width
        assert all("2026-11-17 08:43:55" in line for line in lines[1:])
        assert lines[1].count("…") == 3
        assert "a" * 16 not in lines[1], "an author has 16 characters at most"
        words = ("time", "2026", "2026")
        starts = [cell_len(line[: line.index(word)]) for line, word in zip(lines, words, strict=True)]
        assert len({*starts}) == 1, "columns stand below their titles"


def test_what_fits_is_not_cut_and_takes_no_room(shown: Any) -> None:
    assert shown(lambda out: out.stream((Heading("kind", 6), Heading("key", 20), Heading("changes")),
                                        [("insert", "a1", "x" * 60)])) == ["kind    key  changes",
                                                                           f"insert  a1   {'x' * 60}"]  # fmt: skip


def test_rows_that_come_later_are_cut_as_well(shown: Any) -> None:
    rows = [(f"k{n}", "v") for n in range(300)] + [("k" * 500, "v" * 500)]
    lines = shown(lambda out: out.stream((Heading("key", 20), Heading("value")), iter(rows)))
    assert len(lines) == 302
    assert lines[-1] == f"{'k' * 19}…  {'v' * 57}…"


def test_ids_and_times_are_never_cut(shown: Any) -> None:
    columns = (Heading("commit", right=True), Heading("name", whole=True), Heading("message"))
    (_, line) = shown(lambda out: out.stream(columns, [("0" * 26, "n" * 40, LONG)]), 40)
    assert ("0" * 26) in line
    assert ("n" * 40) in line
    assert line.endswith("goes o…")


def test_line_breaks_and_escapes_do_not_reach_the_terminal(shown: Any) -> None:
    nasty = "one\ntwo\t\x1b[31mred"
    lines = shown(lambda out: out.stream((Heading("a"),), [(nasty,)])) + shown(
        lambda out: out.table((Heading("a"),), [(nasty,)]))
    assert sum("one\\ntwo\\t\\x1b[31mred" in line for line in lines) == 2


def test_what_goes_below_a_row_is_whole(shown: Any) -> None:
    lines = shown(lambda out: out.stream(COLUMNS, [(1, "t", None, "m", LONG), (2, "t", None, "m", None)], below=True))
    assert "changes" not in lines[0]
    below = [line for line in lines if line.startswith(" " * 8)]
    assert " ".join(" ".join(below).split()) == LONG.strip()
    assert max(map(len, lines)) <= 80


def test_one_piece_of_a_line_gives_way_first(shown: Any) -> None:
    (line,) = shown(lambda out: out.line(("*", "12", None, LONG, "orders +1"), gives_way=3))
    assert cell_len(line) <= 80
    assert line.endswith("…  orders +1")


@given(st.text(), st.integers(1, 30))
@settings(max_examples=examples(200))
def test_a_text_is_cut_to_the_columns_that_it_takes(text: str, width: int) -> None:
    found = cut(text, width)
    assert cell_len(found) <= max(width, 1)
    assert (found == text) == (cell_len(text) <= width) or found.endswith("…")
