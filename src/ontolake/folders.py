"""Why nothing can be made at a path: a folder is missing, is a file, or may not be written to."""

from __future__ import annotations

import os
from pathlib import Path

from ontolake.errors import Invalid, NotFound, StorageError


def obstacle(path: str | os.PathLike[str], name: str | None = None) -> StorageError | None:
    """What is in the way of a new file or folder at `path`, as the error to raise; None if nothing can be seen.

    `name` is what to call it in the message.
    """
    made = Path(os.path.abspath(path))
    above = folder = made.parent
    while not os.path.lexists(above) and above != above.parent:
        above = above.parent
    what = f"{name or made} cannot be made"
    if not above.is_dir():
        return Invalid(f"{what}: {above} is not a folder", hint="choose another path")
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return Invalid(f"{what}: the folder {above} may not be written to",
                       hint="check who owns it and its rights, or choose another place")
    if above != folder:
        return NotFound(f"{what}: the folder {folder} does not exist", hint=f"make it first: mkdir -p {folder}")
    return None
