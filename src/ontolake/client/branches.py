"""Branches and tags of a store behind a server."""

from __future__ import annotations

import builtins
from typing import Any
from urllib.parse import quote

from ontolake.client.connection import StoreConnection, commit_value
from ontolake.history import Branch, Ref, Tag
from ontolake.history.errors import BranchError, UnknownBranchError, UnknownTagError
from ontolake.history.names import check_branch_name, check_tag_name, is_name
from ontolake.history.operations import check_flag, check_texts


class RemoteBranches:
    """The branches of a store. See `history.contract.Branches`."""

    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    def list(self) -> builtins.list[Branch[Any]]:
        """The branches that the token may see, the first one first."""
        found: builtins.list[Branch[Any]] = self._connection.get("/branches")["branches"]
        return found

    def create(self, name: str, *, at: Any = None, parent: str | None = None) -> Branch[Any]:
        """A branch of `parent` as it was `at` a commit. See `history.contract.Branches`."""
        if parent is not None and not isinstance(parent, str):
            raise UnknownBranchError(parent)
        body = {"name": check_branch_name(name), "at": commit_value(at), "parent": parent}
        found: Branch[Any] = self._connection.send("POST", "/branches", body)
        return found

    def delete(self, name: str) -> None:
        """Give a branch up. See `history.contract.Branches`."""
        self._connection.send("DELETE", self._path(name))

    def rename(self, name: str, new: str) -> Branch[Any]:
        """Give a branch another name. See `history.contract.Branches`."""
        found: Branch[Any] = self._connection.send("PATCH", self._path(name), {"rename": check_branch_name(new)})
        return found

    def protect(self, name: str, protected: bool = True) -> Branch[Any]:
        """Let a branch change by merges alone, or end that. See `history.contract.Branches`."""
        check_flag("protected", protected)
        found: Branch[Any] = self._connection.send("PATCH", self._path(name), {"protected": protected})
        return found

    def _path(self, name: Any) -> str:
        if not isinstance(name, str):
            raise BranchError(name, "is not a name", hint="onto branch lists what there is")
        if not is_name(name):
            raise UnknownBranchError(name)
        return f"/branches/{quote(name, safe='')}"


class RemoteTags:
    """The tags of a store. See `history.contract.Tags`."""

    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    def list(self) -> builtins.list[Tag[Any]]:
        """The tags of branches that the token may see, by name."""
        found: builtins.list[Tag[Any]] = self._connection.get("/tags")["tags"]
        return found

    def create(self, name: str, ref: str | int | Ref | None = None, *, message: str | None = None) -> Tag[Any]:
        """Name a commit. See `history.contract.Tags`."""
        check_texts(message=message)
        body = {"name": check_tag_name(name), "ref": commit_value(ref), "message": message}
        found: Tag[Any] = self._connection.send("POST", "/tags", body)
        return found

    def delete(self, name: str) -> None:
        """Take a name away. See `history.contract.Tags`."""
        if not is_name(name):
            raise UnknownTagError(name)
        self._connection.send("DELETE", f"/tags/{quote(name, safe='')}")
