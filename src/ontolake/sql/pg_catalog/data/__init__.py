"""What PostgreSQL 15 has built in: a line of JSON for each system table, and for each row that is kept of some.

The files are read from a real server; `tests/sql/support/builtin_rows.py` writes them, and a test compares them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def lines(name: str) -> list[Any]:
    """The lines of a file."""
    return [json.loads(line) for line in Path(FOLDER, f"{name}.jsonl").read_text().splitlines()]
