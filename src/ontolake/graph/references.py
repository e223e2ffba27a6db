"""The branches of a Lance dataset, kept by their files on a local disk.

Lance reads the file of every branch for a list, and lists all of them for a deletion: to delete many took the square
of their number. Here a list is asked for again only if a file is new or another one, and a deletion removes the files
that Lance would remove.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.history.names import is_name

if TYPE_CHECKING:
    from lance import LanceDataset

_SETTLED = 100_000_000
"""Nanoseconds after which a file has another time of change than any that takes its place."""

_Stamp = tuple[int, int, int, int]


class _Listed(NamedTuple):
    """What Lance listed, and the files that it read for that."""

    files: Mapping[str, _Stamp]
    branches: Mapping[str, Any]


class BranchReferences:
    """The branches of one dataset, at `folder` on a local disk, or elsewhere for None. Threads may share it."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._known: _Listed | None = None

    def list(self, dataset: LanceDataset) -> dict[str, Any]:
        """All branches by name, sorted, as Lance describes them. Raises what Lance raises."""
        if self._folder is None:
            return dict(sorted(dataset.branches.list().items()))
        files, known = self._files(), self._known
        if known is not None and files.items() <= known.files.items():
            if len(files) < len(known.files):
                known = _Listed(files, {name: known.branches[name] for name in files})
                self._known = known
            return dict(known.branches)
        begun = time.time_ns()
        branches = dict(sorted(dataset.branches.list().items()))
        settled = all(max(stamp[:2]) < begun - _SETTLED for stamp in files.values())
        if settled and branches.keys() == files.keys() and self._files() == files:
            self._known = _Listed(files, branches)
        return branches

    def _files(self) -> dict[str, _Stamp]:
        """The files of all branches by the names of these, sorted. Names that Lance writes otherwise match none."""
        found: dict[str, _Stamp] = {}
        try:
            with os.scandir(os.path.join(self._folder or "", "_refs", "branches")) as entries:
                for entry in entries:
                    stat = entry.stat()
                    found[entry.name.removesuffix(".json")] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino,
                                                               stat.st_size)
        except FileNotFoundError:  # there was never one, or one goes while we look
            return {}
        return dict(sorted(found.items()))

    def delete(self, dataset: LanceDataset, name: str) -> None:
        """Delete a branch: its reference first, which makes it gone, then its files. Raises what Lance raises."""
        if self._folder is None or not self._stands_alone(dataset, name):
            dataset.branches.delete(name)
            return
        os.unlink(os.path.join(self._folder, "_refs", "branches", f"{name}.json"))
        shutil.rmtree(os.path.join(self._folder, "tree", name), ignore_errors=True)

    def _stands_alone(self, dataset: LanceDataset, name: str) -> bool:
        """Whether a branch is there, and no other was made from it or lies in its folder; else Lance has to decide."""
        listed = self.list(dataset)
        if name not in listed or "/" in name or not is_name(name.lstrip("_")):
            return False
        own = listed[name]["branch_identifier"]
        return not any(one["parent_branch"] == name or one["branch_identifier"][: len(own)] == own
                       or other.startswith(f"{name}/")
                       for other, one in listed.items() if other != name)  # fmt: skip
