"""What a typed store on objects is made of: where each object is, and what stands in it.

`meta/head.json` names the newest manifest, and moving it is the commit. Everything else is written once, under a name
of its own, except for what is advisory: indices, the layout catalog and the schema files are there for people and for
repair, and no read depends on them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ontolake.decoders import learn
from ontolake.model.types import Kind
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.strangers import stranger

ENGINE = "meta/engine.json"
HEAD = "meta/head.json"
LOCK = "meta/locks/ontology_write.json"
CATALOG = "meta/type_layout_catalog.json"
REGISTRY, DROPPED = "meta/schema/registry.json", "meta/schema/dropped.json"
MANIFEST = "manifest.json"
SCHEMAS = "schemas.json"
ERASURES = "meta/erasures/"
FRESH = ("commits/", "snapshots/")
"""Below these every attempt has names of its own, which nobody knows before the head leads to them."""

PLURAL: dict[str, str] = {"entity": "entities", "relation": "relations"}

S = TypeVar("S", bound=msgspec.Struct)


class EngineStamp(msgspec.Struct):
    """`meta/engine.json`."""

    backend: str
    engine_version: str
    created_at: str = ""
    nonce: str = ""


class BranchEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A branch: where it is, and where it began. A deleted one stays until nothing leads to it.

    `lineage` has the branches that it came from, the nearest first, each with the last commit that it sees of it.
    `schemas` is that of the manifest.
    """

    id: int
    name: str
    base_commit_id: int
    head_commit_id: int
    manifest_path: str | None
    created_at: str
    parent_id: int | None = None
    lineage: tuple[tuple[int, int], ...] = ()
    schemas: str | None = None
    protected: bool = False
    deleted_at: str | None = None
    collected_at: str | None = None

    def sees(self, branch_id: int, commit_id: int) -> bool:
        """Whether a commit of a branch is among those that this one has."""
        if branch_id == self.id:
            return commit_id <= self.head_commit_id
        return any(id == branch_id and commit_id <= until for id, until in self.lineage)


class TagEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name for a commit."""

    commit_id: int
    created_at: str
    message: str | None = None


class Head(msgspec.Struct, frozen=True):
    """`meta/head.json`: the single point of truth. `fence` changes whenever somebody takes the write lock.

    From v3 on `commit_id` is the highest one of all branches, and `manifest_path` its manifest. `erased` names the
    object that says which files were written anew without rows that were erased.
    """

    commit_id: int
    manifest_path: str | None
    updated_at: str
    runtime_id: str
    nonce: str
    fence: str = ""
    branches: tuple[BranchEntry, ...] | UnsetType = UNSET
    tags: dict[str, TagEntry] | UnsetType = UNSET
    next_branch: int | UnsetType = UNSET
    erased: str | UnsetType = UNSET

    def branch(self, id: int) -> BranchEntry | None:
        """A branch, whether it lives or not; None where there are none, and for one that was forgotten."""
        return None if self.branches is UNSET else next((one for one in self.branches if one.id == id), None)

    def with_branch(self, entry: BranchEntry) -> Head:
        """The same with a branch as it is now."""
        known = () if self.branches is UNSET else self.branches
        return msgspec.structs.replace(
            self, branches=tuple(entry if one.id == entry.id else one for one in known))


class Lock(msgspec.Struct, frozen=True):
    """`meta/locks/ontology_write.json`. Nobody holds it if `owner_id` is empty or `expires_at` has passed."""

    owner_id: str
    acquired_at: str
    expires_at: float
    lease_ttl_ms: int
    nonce: str


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file of rows of one version of a type, sorted by key.

    In a run every key is once. `updates` is how many rows may replace one of an older run, `low` and `high` are the
    first and the last of the leading keys. `superseded` is set for files of rows that have a successor: the highest
    commit that replaced one of them.
    """

    path: str
    row_count: int
    size: int
    schema_version_id: int
    min_commit_id: int
    max_commit_id: int
    content_sha256: str = ""
    updates: int = 0
    level: int = 0
    low: str | int | None = None
    high: str | int | None = None
    superseded: int | None = None
    deleted: int = 0
    """How many of the rows end their keys."""
    replaces: bool = False
    """Whether the column `$replaces` names every row of an older run that a row of this one replaces."""

    @property
    def is_linked(self) -> bool:
        """Whether it is known without comparing keys which rows of older runs this one replaces."""
        return self.replaces or not self.updates


class TypeState(msgspec.Struct, frozen=True):
    """The files of a type: runs from the oldest to the newest, and rows that have a successor."""

    schema_version_id: int
    activation_commit_id: int
    next_row: int = 1
    runs: tuple[DataFile, ...] = ()
    past: tuple[DataFile, ...] = ()


class TypeEntry(msgspec.Struct, frozen=True):
    """A current type: its version, since when, and which manifest has its state."""

    schema_version_id: int
    activation_commit_id: int
    manifest_path: str


class CommitFile(msgspec.Struct, frozen=True):
    """One file that a commit wrote. From v3 on with its size and the first and the last of the leading keys."""

    kind: Kind
    type_name: str
    path: str
    row_count: int
    schema_version_id: int
    content_sha256: str
    size: int | UnsetType = UNSET
    low: str | int | UnsetType | None = UNSET
    high: str | int | UnsetType | None = UNSET
    deleted: int | UnsetType = UNSET


class CommitManifest(msgspec.Struct, frozen=True):
    """A commit: what it wrote, what came before, and how every type stands after it.

    `ancestors` leads to older commits of the store in few steps, whichever branches they are on; `states` has the types
    whose files differ from before. `queue` is the newest commit that does something to the queue of events, and the
    object that says what. From v3 on there is the branch, and for a merge the second parent.
    """

    commit_id: int
    parent_commit_id: int | None
    parent_manifest_path: str | None
    created_at: str
    runtime_id: str
    metadata: dict[str, Any]
    files: tuple[CommitFile, ...]
    types: dict[str, TypeEntry]
    states: dict[str, TypeState]
    schemas: str | None
    attempt: str
    ancestors: tuple[tuple[int, str], ...] = ()
    dropped: dict[str, TypeEntry] = {}
    queue: tuple[int, str] | None = None
    branch_id: int | UnsetType = UNSET
    merged_commit_id: int | UnsetType = UNSET

    @property
    def parents(self) -> tuple[int, ...]:
        """The parents, that of the branch first."""
        first = () if self.parent_commit_id is None else (self.parent_commit_id,)
        return first if self.merged_commit_id is UNSET else (*first, self.merged_commit_id)

    @property
    def branch(self) -> int:
        """The branch that the commit was made on: the first one where there are no others."""
        return 0 if self.branch_id is UNSET else self.branch_id


class SchemaRecord(msgspec.Struct, frozen=True):
    schema_version_id: int
    schema: dict[str, Any]
    schema_hash: str
    created_at: str
    runtime_id: str | None
    reason: str
    activation_commit_id: int


class Schemas(msgspec.Struct, frozen=True):
    """Every version of every type, and which types were dropped. Written anew when one of them changes."""

    types: dict[str, tuple[SchemaRecord, ...]] = {}
    dropped: tuple[str, ...] = ()


class ErasureNote(msgspec.Struct, frozen=True):
    """What is left of an erasure: when, by whom, why, of which type, and a salted hash of the key."""

    erased_at: str
    author: str | None
    reason: str
    type_kind: Kind
    type_name: str
    rows: int
    salt: str
    key_hash: str


class Erasures(msgspec.Struct, frozen=True, omit_defaults=True):
    """`meta/erasures/….json`, which the head names: all erasures, and files that take the place of others.

    `files` is empty once manifests name the new files themselves; None stands for a file of which no row is left.
    """

    notes: tuple[ErasureNote, ...] = ()
    files: dict[str, DataFile | None] = {}


learn(EngineStamp, Head, Lock, CommitManifest, Schemas, Erasures)


def new_attempt() -> str:
    """What tells the attempts at one commit apart."""
    return secrets.token_hex(4)


def type_key(kind: str, name: str) -> str:
    """How manifests call a type."""
    return f"{kind}/{name}"


def split_key(key: str) -> tuple[Kind, str]:
    kind, _, name = key.partition("/")
    return kind, name  # type: ignore[return-value]


def commit_folder(commit_id: int, attempt: str) -> str:
    return f"commits/{commit_id}-{attempt}"


def snapshot_path(kind: str, name: str, version: int, what: str, until: int, attempt: str) -> str:
    """Where merged files are: `what` is `run` or `past`."""
    return f"snapshots/{PLURAL[kind]}/{name}/v{version}/{what}-{until}-{attempt}.parquet"


def index_path(kind: str, name: str) -> str:
    return f"meta/indices/{PLURAL[kind]}/{name}.json"


def erasures_path() -> str:
    return f"{ERASURES}{secrets.token_hex(8)}.json"


def versions_path(kind: str, name: str) -> str:
    return f"meta/schema/versions/{kind}/{name}.json"


def encode(record: Any) -> bytes:
    """An object of ours as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def compact(record: Any) -> bytes:
    """The same without spaces, for what is written with every commit."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[S], path: str, url: str) -> S:
    """An object of ours from its JSON. Raises `StorageBackendError`, naming the object, for anything else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise stranger(url, f"its object {path!r} is not what Ontolake writes ({error})") from error
    except msgspec.MsgspecError as error:
        raise StorageBackendError(f"the object {path!r} in {url} is not what it should be: {error}",
                                  hint="restore it from a copy; onto verify looks at all of them") from error


def lineage(parent: CommitManifest | None, parent_path: str | None) -> tuple[tuple[int, str], ...]:
    """The ancestors that a child of `parent` names: itself, then further ones, each twice as far away or more.

    The numbers of commits between them are those of a skew binary numeral, so that every commit is reached in
    logarithmically many steps, and a child's list follows from its parent's alone.
    """
    if parent is None or parent_path is None or parent.commit_id == 0:
        return ()
    before = parent.ancestors
    own = (parent.commit_id, parent_path)
    if len(before) > 1:
        third = before[2][0] if len(before) > 2 else 0
        if before[0][0] - before[1][0] == before[1][0] - third:
            return (own, *before[2:])
    return (own, *before)


def redirected(manifest: CommitManifest, files: Mapping[str, DataFile | None]) -> CommitManifest:
    """A manifest that names the files which took the place of others."""
    wrote = []
    for one in manifest.files:
        new = files.get(one.path, one)
        if isinstance(new, DataFile):
            new = msgspec.structs.replace(
                one, path=new.path, row_count=new.row_count, content_sha256=new.content_sha256, size=new.size,
                low=new.low, high=new.high, deleted=new.deleted)
        if new is not None:
            wrote.append(new)
    states = {key: msgspec.structs.replace(state, runs=_moved(state.runs, files), past=_moved(state.past, files))
              for key, state in manifest.states.items()}
    return msgspec.structs.replace(manifest, files=tuple(wrote), states=states)


def _moved(files: tuple[DataFile, ...], to: Mapping[str, DataFile | None]) -> tuple[DataFile, ...]:
    return tuple(new for one in files if (new := to.get(one.path, one)) is not None)
