"""`make demo` tells the story of the shop to its end, and its totals are those of the files."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "shop"
ROWS = 1000


def totals(folder: Path) -> dict[str, tuple[int, Decimal]]:
    """How many orders customers of each tier placed, and what they come to, by plain Python over what was delivered."""
    with (folder / "customers.csv").open() as lines:
        tiers = {row["customer_id"]: row["tier"] for row in csv.DictReader(lines)}
    found: defaultdict[str, tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for line in (folder / "orders.jsonl").read_text().splitlines():
        try:
            order = json.loads(line)
        except ValueError:
            continue
        if order["count"] >= 1:
            count, total = found[tiers[order["customer"]]]
            found[tiers[order["customer"]]] = count + 1, total + Decimal(order["total"])
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_story_holds_and_its_totals_are_those_of_the_files(tmp_path: Path) -> None:
    work, kept = tmp_path / "work", tmp_path / "kept"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, SHOP / "demo.py", "--rows", str(ROWS), "--keep", kept], capture_output=True, text=True,
        timeout=880, check=False, cwd=tmp_path, env={**os.environ, "TMPDIR": str(work)})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout, "plain text where there is no terminal"
    chapters = re.findall(r"^\d+\. (.*)$", done.stdout, re.MULTILINE)
    assert len(chapters) == 9
    for told in ("10 rows are in the quarantine", "customers.csv:7  since: '2019-02-30'", "nothing differs",
                 "commit 2 has", "cost", "the difference: customers c000003, c000004, c000005", "merged;",
                 "every product has a family", "nothing left to do", "commit 1 at s3://", "to the cent", "Try next"):
        assert told in done.stdout

    subprocess.run([sys.executable, "-c", "import pathlib, sys; from deliveries import deliver; "
                    "deliver(pathlib.Path(sys.argv[1]), int(sys.argv[2]))", tmp_path / "first", str(ROWS)],
                   cwd=SHOP, check=True)
    wanted = totals(tmp_path / "first")
    printed = re.findall(r"^   (\w+) +([\d,]+) orders +([\d,.]+)$", done.stdout, re.MULTILINE)
    assert {tier: (int(count.replace(",", "")), Decimal(total.replace(",", ""))) for tier, count, total in printed} == (
        wanted)
    assert sum(count for count, _ in wanted.values()) == ROWS - 2
    report = (kept / "shop-report.html").read_text()
    assert "entity/Customer" in report
    assert "platinum" in report
    assert list(kept.iterdir()) == [kept / "shop-report.html"]
    assert [path.name for path in work.iterdir() if path.name.startswith("ontolake")] == []


@pytest.mark.slow
def test_a_size_that_makes_no_shop_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SHOP / "demo.py", "--rows", "5"], capture_output=True, text=True,
                          timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "100 orders or more" in done.stderr
