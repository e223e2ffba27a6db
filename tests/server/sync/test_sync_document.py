"""The conversations in docs/sync.md are what a server says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from serving import serving
from syncing import syncing

from ontolake.documents import open_space

PAGE = (Path(__file__).parents[3] / "docs" / "sync.md").read_text()


def lines() -> list[tuple[str, Any]]:
    blocks = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    return [(line[0], json.loads(line[2:])) for block in blocks for line in block.splitlines()]


def fits(told: Any, answer: Any) -> bool:
    """Whether an answer is what the page tells; `…` stands for anything."""
    if told == "…":
        return True
    if isinstance(told, dict) and isinstance(answer, dict):
        return told.keys() == answer.keys() and all(fits(told[name], answer[name]) for name in told)
    if isinstance(told, list) and isinstance(answer, list):
        return len(told) == len(answer) and all(map(fits, told, answer))
    return bool(told == answer)


def test_conversations_are_as_the_page_tells_them(tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "notes"):
        pass
    spoken = lines()
    assert len(spoken) > 15
    with serving({"notes": f"{tmp_path}/notes.sqlite"}) as served, syncing(served, hello=False) as client:
        for side, message in spoken:
            if side == "→":
                client.socket.send(json.dumps(message))
                continue
            answer = client.receive()
            while answer["type"] == "sync" and message["type"] != "sync":  # progress, which comes when it comes
                assert answer["upserts"] == []
                answer = client.receive()
            assert fits(message, answer), (message, answer)
