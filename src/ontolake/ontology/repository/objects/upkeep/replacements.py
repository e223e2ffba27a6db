"""Files that take the place of others after an erasure: published by the head, then named by the manifests themselves.

Each step can be done again. `finish` does what is left to do of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from ontolake import faults
from ontolake.errors import PreconditionFailed
from ontolake.objects import new_nonce
from ontolake.objects import replace as swap
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import CommitManifest, DataFile, ErasureNote, Erasures
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.layout import CommitEvents, Item
from ontolake.ontology.repository.objects.queue.queue import write_down
from ontolake.ontology.repository.objects.queue.view import QueueView
from ontolake.ontology.repository.objects.upkeep.checks import manifests
from ontolake.ontology.repository.objects.upkeep.maintenance import needed, repair_index

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3


def known(repository: S3RepositoryV3) -> Erasures:
    """The erasures of a store, and the files that manifests do not name yet."""
    path = repository.moment().head.erased
    if path is UNSET:
        return Erasures()
    return layout.decode(repository.access.need(path, "the head"), Erasures, path, repository.access.url)


def publish(repository: S3RepositoryV3, note: ErasureNote, files: Mapping[str, DataFile | None]) -> None:
    """Have files take the place of others for every reader and writer from now on, and keep a note of it."""
    _change(repository, lambda now: Erasures((*now.notes, note), {**now.files, **files}))
    faults.reach("ontology: erasure durable")


def add_notes(repository: S3RepositoryV3, notes: Sequence[ErasureNote]) -> None:
    """Keep notes of erasures that were done elsewhere."""
    with repository.lock.held(repository.runtime_id):
        _change(repository, lambda now: Erasures((*now.notes, *notes), now.files))


def _change(repository: S3RepositoryV3, change: Callable[[Erasures], Erasures]) -> None:
    while True:
        repository.lock.check()
        moment = repository.moment()
        path = layout.erasures_path()
        repository.access.write({path: layout.encode(change(known(repository)))})
        head = replace(moment.head, erased=path, nonce=new_nonce().decode())
        faults.reach("ontology: erasure written, not yet durable")
        try:
            swap(repository.access.store, layout.HEAD, layout.compact(head), moment.tag, head.nonce.encode())
        except PreconditionFailed:
            repository.access.delete([path])
            continue
        if moment.head.erased is not UNSET:
            repository.access.delete([moment.head.erased])
        return


def finish(repository: S3RepositoryV3) -> None:
    """Write the manifests anew that name replaced files, delete these, and forget that they were replaced."""
    files = known(repository).files
    if not files:
        return
    with repository.reading():
        paths = [path for path, _ in manifests(repository, repository.moment())]
    for path in paths:
        manifest = _stored(repository, path)
        named = {one.path for one in manifest.files} | {
            one.path for state in manifest.states.values() for one in (*state.runs, *state.past)}
        if named & files.keys():
            repository.access.write({path: layout.compact(layout.redirected(manifest, files))})
            faults.reach("ontology: manifest written anew")
    repository.access.delete(list(files))
    faults.reach("ontology: erased files deleted")
    _change(repository, lambda now: Erasures(now.notes, {old: new for old, new in now.files.items()
                                                         if old not in files}))  # fmt: skip
    if repository.advises:
        repair_index(repository)


def _stored(repository: S3RepositoryV3, path: str) -> CommitManifest:
    """A manifest as it is written."""
    return layout.decode(repository.access.need(path, "a manifest"), CommitManifest, path, repository.access.url)


def sweep(repository: S3RepositoryV3, types: Collection[tuple[str, str]]) -> None:
    """Delete what no manifest names and may hold rows of these types: attempts that came to nothing, merged files, and
    what commits of collected branches say of their files."""
    with repository.reading():
        moment = repository.moment()
        kept, wanted = repository.kept_branches(), needed(repository, moment)
        for path, manifest in manifests(repository, moment):
            if manifest.branch not in kept and (manifest.files or manifest.states):
                repository.access.write({path: layout.compact(replace(manifest, files=(), states={}))})
        parts = [f"/{layout.PLURAL[kind]}/{name}/" for kind, name in types]
        gone = [info.key for folder in layout.FRESH for info in repository.access.listed(folder)
                if info.key not in wanted and (info.key.endswith(".json") or any(part in info.key for part in parts))]
        gone += [info.key for info in repository.access.listed(layout.ERASURES)
                 if info.key != moment.head.erased]
    repository.access.delete(gone)
    faults.reach("ontology: leftovers deleted")


# events
def naming_events(repository: S3RepositoryV3, texts: Sequence[str]) -> list[Item]:
    """The events that name a key, those that are past too."""
    if not texts or (repository.access.find(names.QUEUE) is None and not _queues(repository)):
        return []
    queue = repository.events.queue
    items = [*queue.read().items(), *(one.item for one in queue.all_past() if one.item is not None)]
    return [item for item in items if any(text in item.event.payload_json for text in texts)]


def _queues(repository: S3RepositoryV3) -> bool:
    newest = repository.moment().newest
    return newest is not None and newest.queue is not None


def erase_events(repository: S3RepositoryV3, texts: Sequence[str]) -> None:
    """Remove the events that name a key, from the queue and from what commits did to it."""
    found = naming_events(repository, texts)
    queue = repository.events.queue
    if texts and _queues(repository):
        queue.change("queue brought up to date", write_down)
        _erase_changes(repository, texts)
    if not found:
        return
    pages = {ref.path for ref in queue.read().pages}
    queue.bury(item for item in found if item.state.what == "done")

    def remove(view: QueueView) -> None:
        for item in found:
            now = view.of(item.seq)
            if now is not None:
                view.put(now, replace(now.state, what="gone"))

    queue.change("events erased", remove, tidied=True)
    repository.access.delete(sorted(pages - {ref.path for ref in queue.read().pages}))


def _erase_changes(repository: S3RepositoryV3, texts: Sequence[str]) -> None:
    """Delete what commits did to the queue where it names a key: it is written into the queue by now."""
    with repository.reading():
        pointers = {manifest.queue[1] for _, manifest in manifests(repository, repository.moment())
                    if manifest.queue is not None}
    for path in sorted(pointers):
        found = repository.access.find(path)
        if found is not None:
            change = layout.decode(found.data, CommitEvents, path, repository.access.url)
            if any(text in event.payload_json for event in change.queued for text in texts):
                repository.access.delete([path])
