"""`onto info URL`: what is there, for a store of any kind."""

from __future__ import annotations

from typing import Any

from ontolake.cli.output import Json, Out, Url, size, titled


def info(url: Url, json: Json = False) -> None:
    """Say what is at a URL: the kind of store, its engine and version, and where its history stands."""
    from ontolake.cli import page_store

    found = page_store.find(url)
    facts: dict[str, Any] = {
        "url": url,
        "kind": found.stamp.kind,
        "engine": found.stamp.engine,
        "format_version": found.stamp.version,
    }
    if found.stamp.kind == "pages":
        with page_store.open_pages(found) as storage:
            refs = storage.list_branches()
            facts |= {
                "page_size": storage.page_size,
                "durable_lsn": storage.durable_lsn(),
                "branches": [page_store.branch_facts(ref, refs) for ref in refs],
            }
    facts["bytes"] = page_store.stored_bytes(found)
    out = Out(json)
    if json:
        out.document(facts)
        return
    shown = {titled(name): value for name, value in facts.items() if value is not None}
    shown["kind"] = page_store.described(found.stamp)
    shown["bytes"] = size(facts["bytes"])
    if "branches" in facts:
        shown["branches"] = ", ".join(branch["name"] for branch in facts["branches"])
    out.facts(shown)
