"""Every example of the README and of the docs works as it is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ontolake.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"python", "console", "bash", "text", "toml", "json"}


class Block(NamedTuple):
    language: str
    line: int
    body: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(m["info"], text.count("\n", 0, m.start("body")) + 1, m["body"]) for m in FENCE.finditer(text)]


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    # Blank lines in front make a traceback point at the line of the page.
    exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), namespace)


def run_console(block: Block, page: Path) -> None:
    for command in re.findall(r"^\$ (.*)$", block.body, re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "onto", f"{page.name}:{block.line}: a console block runs `onto` only: {command}"
        assert main(arguments) == 0, f"{page.name}:{block.line}: {command}"


@pytest.fixture
def empty_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:  # fmt: skip
    """Where a page's examples run; variables that they set are taken back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONTO_TOKENS", str(tmp_path / "tokens.json"))  # not those of whoever runs the tests
    if request.node.callspec.params["page"].stem == "spark":
        request.getfixturevalue("spark")  # before the page starts a session, which other tests would have to take
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


SLOW = {"graph": [pytest.mark.slow], "spark": [pytest.mark.slow, pytest.mark.xdist_group("spark")]}
RUN = [pytest.param(page, id=page.stem, marks=SLOW.get(page.stem, [])) for page in PAGES]


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("page", RUN)
def test_examples_of_a_page_run_in_order(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "console":
            run_console(block, page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """So that no example escapes being run by a misspelt or decorated language."""
    assert page.read_text().count("\n```") == 2 * len(blocks(page))
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert targets
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    # Not --quiet: mkdocs would then count no warnings, and --strict would find nothing.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "site" / "index.html").read_text()
    assert "<h1" in html
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', html)
    assert loaded == [], "pages load nothing from other hosts"
