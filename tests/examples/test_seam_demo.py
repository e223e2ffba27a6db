"""`make demo-seam` tells a story that holds, in a terminal and in a pipe, and cleans up after itself."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "seam" / "demo.py"


@pytest.mark.slow
def test_the_story_holds_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, timeout=120, check=False,
                          cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout, "plain text where there is no terminal"
    steps = re.findall(r"^\d\. (.*)$", done.stdout, re.MULTILINE)
    assert len(steps) == 6
    for told in ("killed by signal 9", "everything acknowledged is there", "the cut-off write is not", "refused:",
                 "a directory of objects", "memory, for tests", "a real S3 server", "Try next"):
        assert told in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seam_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_story_that_does_not_hold_ends_the_demo(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.check(False, "the moon is made of cheese")
    assert "not as told" in str(ended.value)
    assert capsys.readouterr().out == ""


def test_the_demo_runs_the_example_of_the_readme() -> None:
    """Line by line, so that neither changes without the other."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "open_storage(url)" in block]
    body = example[example.index("with open_storage(url)") :]
    assert textwrap.indent(body, "    ", lambda line: bool(line.strip())) in DEMO.read_text()
    helper = example[example.index("def image") : example.index("url =")].strip()
    assert helper in DEMO.read_text()
