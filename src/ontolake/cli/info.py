"""`onto info [URL]`: what is there, for a store of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontolake.cli.common.options import AnyUrl, Db, StorageUri, place
from ontolake.cli.common.output import Heading, Json, Out, size, titled

if TYPE_CHECKING:
    from ontolake.stores import Store

_TYPES = (Heading("type"), Heading("kind"), Heading("version", right=True), Heading("rows", right=True),
          Heading("since commit", right=True))


def info(url: AnyUrl = None, db: Db = None, storage_uri: StorageUri = None, json: Json = False) -> None:
    """Say what is at a URL: the kind of store, its engine and version, and where its history stands."""
    from ontolake.cli.common import page_store
    from ontolake.stores import find

    store = find(place(db, storage_uri, url))
    site = store.site
    facts: dict[str, Any] = {
        "url": store.url,
        "kind": site.stamp.kind,
        "engine": site.stamp.engine,
        "format_version": site.stamp.version,
    }
    if site.on_pages:
        with page_store.open_pages(site) as storage:
            refs = storage.list_branches()
            facts |= {
                "page_size": storage.page_size,
                "durable_lsn": storage.durable_lsn(),
                "branches": [page_store.branch_facts(ref, refs) for ref in refs],
            }
    facts["bytes"] = None if store.is_remote else page_store.stored_bytes(site)
    if store.model is not None:
        facts["model"] = store.model.name
        facts |= _model_facts(store)
    out = Out(json)
    if json:
        out.document(facts)
        return
    types = facts.pop("types", None)
    shown = {titled(name): value for name, value in facts.items() if value is not None and name != "model"}
    shown["kind"] = store.described
    if facts["bytes"] is not None:
        shown["bytes"] = size(facts["bytes"])
    if "branches" in facts:
        shown["branches"] = ", ".join(branch["name"] or "main" for branch in facts["branches"])
    if "dropped" in facts:
        shown["dropped"] = ", ".join(facts["dropped"]) or None
    out.facts(shown)
    if types:
        out.say()
        out.table(_TYPES, [(one["type_name"], one["type_kind"], one["schema_version_id"], one["rows"],
                            one["activation_commit_id"]) for one in types])  # fmt: skip


def _model_facts(store: Store) -> dict[str, Any]:
    with store.opened() as versioned:
        if store.model is not None and store.model.name == "typed":
            return {**_typed(versioned, store.is_remote), **_branches(store, versioned)}
        newest = next(iter(versioned.commits()), None)
        facts: dict[str, Any] = {"head": None if newest is None else newest.id}
        if store.model is not None and store.model.name == "graph" and not store.is_remote:
            facts["format_version"] = versioned.internal_schema_version()
        return {**facts, **_branches(store, versioned)}


def _branches(store: Store, versioned: Any) -> dict[str, Any]:
    """The branches, where a store has them."""
    return {"branches": [branch._asdict() for branch in versioned.branches.list()]} if store.offers("branch") else {}


def _typed(store: Any, is_remote: bool) -> dict[str, Any]:
    """What a typed store knows of itself: its engine, its head, its types with how many rows they have now."""
    from ontolake.model.stored import StoredType

    repository = store.repository
    with repository.reading():
        schemas = repository.schemas()
        types = [{
            "type_kind": info.kind, "type_name": info.name,
            "schema_version_id": schemas[info.kind, info.name].schema_version_id,
            "schema_hash": schemas[info.kind, info.name].schema_hash,
            "rows": store.query().of(info).count() if is_remote else
            repository.count_stored(StoredType(schemas[info.kind, info.name].schema)),
            "activation_commit_id": repository.activation(info),
        } for info in store.types]  # fmt: skip
        return {
            "backend": repository.backend, "engine_version": repository.engine_version, "head": repository.head(),
            "dropped": sorted(name for _, name in repository.dropped()), "types": types,
        }  # fmt: skip
