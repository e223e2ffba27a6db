"""What a commit asks of the file, counted in calls and bytes: the same however long the history is."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from ontolake import engine

ROWS = 5_000


def asked() -> Counter[str]:
    """The calls and bytes of this thread, ever."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    found = dict(line.split(": ") for line in lines)
    return Counter({name: int(found[name]) for name in ("syscr", "syscw", "rchar", "wchar")})


@pytest.mark.slow
@pytest.mark.parametrize("index_every", [16, 256], ids=["often", "by default"])
def test_one_row_commits_cost_the_same_after_thousands_of_them(tmp_path: Path, index_every: int) -> None:
    """The index of the log is merged within these commits, at every level that so many of them reach."""
    commits = 2_400
    chance = random.Random(5)
    url = f"file://{tmp_path}/pages.db"
    with closing(engine.connect(url, maintenance="inline", index_every=index_every)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?, ?)", ((i, "x" * 90) for i in range(ROWS)))
        windows = []
        for _ in range(4):
            before = asked()
            for _ in range(commits // 4):
                connection.execute("UPDATE t SET x = x || '.' WHERE id = ?", (chance.randrange(ROWS),))
            after = asked()
            windows.append({name: after[name] - before[name] for name in after})
        first, last = windows[0], windows[-1]
        for name, count in last.items():
            assert count <= 1.25 * first[name], f"{name} in {windows}"
