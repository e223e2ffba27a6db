"""Tags of a graph as they are stored: names for commits, which every cleanup keeps.

A tag is an object below `__tags/`. Older releases made tags of Lance on the manifest; these are read as well.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

from ontolake import faults
from ontolake.errors import AlreadyExists, NotFound
from ontolake.graph.commit.manifest import MANIFEST, Manifest
from ontolake.graph.commit.records import MAIN
from ontolake.graph.parts import GraphParts
from ontolake.history import Tag, TagExistsError, UnknownTagError

FOLDER = "__tags"
FORMAT = 1
_SLASH = "%2F"
"""What stands for `/` in keys, so that no tag is a folder for another."""


def _key(name: str) -> str:
    return f"{FOLDER}/{name.replace('/', _SLASH)}.json"


class TagStore:
    """The tags of one graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts
        self._store = parts.place.store

    @property
    def _manifest(self) -> Manifest:
        return self._parts.manifest

    def all(self) -> dict[str, Tag[str]]:
        """Every tag by name, sorted."""
        found = self.of_lance()
        for info in list(self._store.list(f"{FOLDER}/")):
            name = info.key.removeprefix(f"{FOLDER}/").removesuffix(".json").replace(_SLASH, "/")
            tag = self._read(name) if info.key.endswith(".json") else None
            if tag is not None:
                found[name] = tag
        return dict(sorted(found.items()))

    def of_lance(self, line: str | None = None, only: str | None = None) -> dict[str, Tag[str]]:
        """Tags that older releases made, of all lines or of one, or the one of a name."""
        dataset = self._manifest.dataset(MAIN)
        found: dict[str, Tag[str]] = {}
        for name, tag in dataset.tags.list().items():
            branch = tag["branch"] or MAIN
            if line in (None, branch) and only in (None, name):
                at = dataset.checkout_version((tag["branch"], tag["version"]))
                found[name] = Tag(name, self._manifest.head_at(branch, at).id, branch)
        return found

    def _read(self, name: str) -> Tag[str] | None:
        try:
            data = json.loads(self._store.get(_key(name)).data)
        except NotFound:
            return None
        return Tag(name, data["commit"], data["branch"], datetime.fromisoformat(data["time"]), data["message"])

    def get(self, name: str) -> Tag[str] | None:
        return self._read(name) or self.of_lance(only=name).get(name)

    def commits(self) -> set[str]:
        """The commits that have a tag."""
        return {tag.commit for tag in self.all().values()}

    def put(self, name: str, commit: str, branch: str, message: str | None) -> Tag[str]:
        """Raises `TagExistsError`."""
        tag = Tag(name, commit, branch, datetime.now(UTC), message)
        data = {"format": FORMAT, "commit": commit, "branch": branch, "message": message,
                "time": tag.time.isoformat(timespec="microseconds") if tag.time is not None else None}  # fmt: skip
        faults.reach("graph: before creating a tag")
        try:
            self._store.put_if_absent(_key(name), json.dumps(data).encode())
        except AlreadyExists as error:
            raise TagExistsError.of(name) from error
        faults.reach("graph: tag created")
        return tag

    def delete(self, name: str) -> None:
        """Raises `UnknownTagError`."""
        old = name in self._manifest.dataset(MAIN).tags.list()
        if self._read(name) is None and not old:
            raise UnknownTagError(name)
        faults.reach("graph: before deleting a tag")
        if old:
            self._forget(name)
        self._store.delete([_key(name)])
        faults.reach("graph: tag deleted")

    def take_over(self, tag: Tag[str]) -> None:
        """Keep a tag of an older release in the way of this one: Lance would lose it with its branch."""
        with suppress(TagExistsError):
            self.put(tag.name, tag.commit, self._parts.names.name(tag.branch), tag.message)
        self._forget(tag.name)

    def _forget(self, name: str) -> None:
        self._manifest.dataset(MAIN).tags.delete(name)
        self._parts.place.settle_reference(MANIFEST, None, None, "tags")
