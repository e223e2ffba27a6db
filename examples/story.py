"""How the examples talk: numbered steps, code that is run, and statements that are checked before they are made."""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

console = Console(highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty())
_numbers = itertools.count(1)


def step(title: str) -> None:
    console.print()
    console.print(Text.assemble((f"{next(_numbers)}. ", "bold cyan"), (title, "bold")))


def tell(words: str) -> None:
    console.print(Text(f"   {words}"))


def code(line: str, remark: str = "") -> None:
    """A line of the program, and a remark behind it."""
    console.print(Text.assemble(("   > ", "dim"), (line, "cyan"), (f"  # {remark}" if remark else "", "dim")))


def check(holds: bool, words: str) -> None:
    """Say what was found, and end the story if it is not so."""
    if not holds:
        raise SystemExit(f"   not as told: {words}")
    console.print(Text.assemble(("   ✓ ", "bold green"), words))


@contextmanager
def told(title: str, then: Iterable[tuple[str, str]]) -> Iterator[None]:
    """A story with its title, how long it took, and what to try next."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where there is no ✓ to print, a ? will do
    console.print(Text(title, "bold"))
    started = time.perf_counter()
    yield
    console.print()
    console.print(Text(f"All as told, in {time.perf_counter() - started:.1f} s.", "bold green"))
    console.print(Text("Try next", "bold"))
    for command, what in then:
        console.print(Text.assemble(("   " + command, "cyan"), f"\n       {what}"))
