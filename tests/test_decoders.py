"""What is stored can be read by threads that begin at the same time."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = [
    "ontolake.storage.state", "ontolake.storage.options", "ontolake.storage.medium", "ontolake.sql.catalog.records",
    "ontolake.ontology.repository.objects.layout", "ontolake.ontology.repository.objects.queue.layout",
    "ontolake.ontology.repository.objects.attachment", "ontolake.ontology.events.copies",
    "ontolake.ontology.moving.import_lines", "ontolake.documents.wire",
    "ontolake.server.sync.messages",
]  # fmt: skip
"""Those that decode types of their own."""

LOOK = """
import sys
from importlib import import_module
import msgspec

late = set()

def watch(frame, event, argument):
    if event == "call" and "msgspec" in frame.f_code.co_filename:
        late.add(kind.__qualname__)

for module in map(import_module, sys.argv[1:]):
    kinds = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    for kind in kinds:
        sys.setprofile(watch)
        try:
            msgspec.json.decode(b"{}", type=kind)
        except msgspec.ValidationError:
            pass
        finally:
            sys.setprofile(None)
print(*late)
"""


@pytest.mark.slow
def test_types_are_learned_before_anything_is_decoded() -> None:
    """msgspec ends the process if two threads have it work out a type at the same time."""
    done = subprocess.run([sys.executable, "-c", LOOK, *MODULES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
