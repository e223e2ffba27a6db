"""Branches and tags: list, create, delete, rename, protect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ontolake import stores
from ontolake.history import Ref, UnknownBranchError
from ontolake.server.answers import FORMS, answer, branch_name, named_branch, named_tag
from ontolake.server.api.stores import reads_something
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.server.words import BranchList, BranchOut, TagList, TagOut


class BranchIn(msgspec.Struct, forbid_unknown_fields=True):
    """A branch to create: of `parent`, by default the first one, as it was `at` a reference."""

    name: str
    at: str | int | None = None
    parent: str | None = None


class BranchPatch(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a branch."""

    rename: str | None = None
    protected: bool | None = None


class TagIn(msgspec.Struct, forbid_unknown_fields=True):
    """A tag to create: a name for the commit of a reference, by default the head of the first branch."""

    name: str
    ref: str | int | None = None
    message: str | None = None


def readable(call: Call, name: str) -> bool:
    """Whether the token sees a branch."""
    return call.principal.sees_branch(name)


def reads(call: Call, ref: str | int | None) -> Touch:
    """Reading at a reference, or at a commit by its number."""
    return Touch(TokenScope.READ, call.store.branch_of(ref_text(ref), call.principal))


def ref_text(ref: str | int | None) -> str | None:
    """A reference, or the number of a commit, as a reference."""
    return str(Ref(None, str(ref))) if isinstance(ref, int) else ref


@route("GET", "/stores/{store}/branches", touches=reads_something, answers={200: BranchList}, forms=FORMS,
       tag="history")
def list_branches(call: Call) -> Any:
    """The branches that the token may see, the first one first."""
    with call.store.reading() as store:
        found = [named_branch(one) for one in store.branches.list()]
        return answer(call, {"branches": [one for one in found if readable(call, one.name)]})


def _creates(call: Call) -> Iterable[Touch]:
    body: BranchIn = call.body
    yield Touch(TokenScope.WRITE, body.name)
    yield reads(call, body.at if body.at is not None else body.parent)
    if body.parent is not None:
        yield Touch(TokenScope.READ, body.parent)


@route("POST", "/stores/{store}/branches", touches=_creates, body=BranchIn, answers={201: BranchOut}, forms=FORMS,
       tag="history")
def create_branch(call: Call) -> Any:
    """Create a branch."""
    body: BranchIn = call.body
    with call.store.writing() as store:
        made = store.branches.create(body.name, at=body.at, parent=body.parent, **_signed(call))
        return answer(call, named_branch(made), 201)


def _signed(call: Call) -> dict[str, Any]:
    """The author, where creating or deleting a branch is a commit."""
    return {"author": call.principal.name} if call.store.model is stores.DOCUMENTS else {}


def _deletes(call: Call) -> Iterable[Touch]:
    return [Touch(TokenScope.WRITE, call.path["name"])]


@route("DELETE", "/stores/{store}/branches/{name:path}", touches=_deletes, answers={204: None},
       tag="history")
def delete_branch(call: Call) -> Any:
    """Delete a branch."""
    with call.store.writing() as store:
        store.branches.delete(call.path["name"], **_signed(call))
    return answer(call, None, 204)


def _patches(call: Call) -> Iterable[Touch]:
    body: BranchPatch = call.body
    yield Touch(TokenScope.WRITE if body.protected is None else TokenScope.ADMIN, call.path["name"])
    if body.rename is not None:
        yield Touch(TokenScope.WRITE, body.rename)


@route("PATCH", "/stores/{store}/branches/{name:path}", touches=_patches, body=BranchPatch, answers={200: BranchOut},
       forms=FORMS, tag="history")
def change_branch(call: Call) -> Any:
    """Rename a branch, or protect it from anything but merges, or end that."""
    body, name = call.body, call.path["name"]
    if body.rename is None and body.protected is None:
        raise RefusedError(422, "there is nothing to change", hint="send rename, protected, or both")
    with call.store.writing() as store:
        found = next((one for one in map(named_branch, store.branches.list()) if one.name == name), None)
        if found is None:
            raise UnknownBranchError(name)
        if body.protected is False:
            found = store.branches.protect(name, False)
        if body.rename is not None and body.rename != name:
            found = store.branches.rename(name, body.rename)
        if body.protected:
            found = store.branches.protect(found.name, True)
        return answer(call, named_branch(found))


@route("GET", "/stores/{store}/tags", touches=reads_something, answers={200: TagList}, forms=FORMS, tag="history")
def list_tags(call: Call) -> Any:
    """The tags of branches that the token may see, by name."""
    with call.store.reading() as store:
        found = [named_tag(one) for one in store.tags.list()]
        return answer(call, {"tags": [one for one in found if readable(call, one.branch)]})


def _tags(call: Call) -> Iterable[Touch]:
    yield Touch(TokenScope.WRITE, call.store.branch_of(ref_text(call.body.ref), call.principal))


@route("POST", "/stores/{store}/tags", touches=_tags, body=TagIn, answers={201: TagOut}, forms=FORMS, tag="history")
def create_tag(call: Call) -> Any:
    """Name a commit."""
    body: TagIn = call.body
    with call.store.writing() as store:
        return answer(call, named_tag(store.tags.create(body.name, body.ref, message=body.message)), 201)


def _untags(call: Call) -> Iterable[Touch]:
    if call.principal.sees_all_branches:
        return [Touch(TokenScope.WRITE, None)]
    with call.store.reading() as store:
        found = next((one for one in store.tags.list() if one.name == call.path["name"]), None)
    return [Touch(TokenScope.WRITE, None if found is None else branch_name(found.branch))]


@route("DELETE", "/stores/{store}/tags/{name:path}", touches=_untags, answers={204: None}, tag="history")
def delete_tag(call: Call) -> Any:
    """Take a name away; the commit stays."""
    with call.store.writing() as store:
        store.tags.delete(call.path["name"])
    return answer(call, None, 204)


