"""The dialect `ontolake://` passes SQLAlchemy's own suite for dialects, but for what `dialect_suite/` names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "dialect_suite"


@pytest.mark.slow
def test_the_dialect_suite_passes(tmp_path: Path) -> None:
    """In a process of its own: the suite brings its own plugin for pytest."""
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "setup.cfg"), f"--rootdir={SUITE}", "-q",
               f"--dburi=ontolake:///{tmp_path}/suite.db", str(SUITE / "test_suite.py")]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=280,
                          env={**os.environ, "PYTHONPATH": str(SUITE)})  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|skipped)", done.stdout.splitlines()[-1])}
    assert counts["passed"] > 1700
    assert counts["skipped"] < 100
