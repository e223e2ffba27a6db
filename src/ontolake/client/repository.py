"""`RemoteRepository`: a typed store behind a server, as sessions and queries see stores.

Plans are answered by the server, and commits are worked out there; what sessions never ask for over HTTP is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from ontolake.client.connection import ARROW, StoreConnection
from ontolake.client.opening import connect_options
from ontolake.errors import Invalid
from ontolake.history import Commit
from ontolake.history.errors import UnknownCommitError as UnknownHistoryCommit
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import UnknownCommitError
from ontolake.ontology.intents import Intents
from ontolake.ontology.query import plan_wire
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.remote import encode_intents, schemas_for
from ontolake.ontology.repository.protocol import Repository, Row, SchemaVersion
from ontolake.ontology.versioned import table_of

if TYPE_CHECKING:
    import pyarrow as pa


class RemoteRepository:
    """A typed store behind a server, on one branch."""

    takes_columns = False

    def __init__(self, connection: StoreConnection, config: Config) -> None:
        self.connection = connection
        self.config = config
        self.uri = connection.url
        self.seen_head = 0
        self._kept: dict[str, Any] | None = None

    def _state(self, *, fresh: bool = False) -> dict[str, Any]:
        """What the server says of the store. What never changes may be what it said before."""
        if fresh or self._kept is None:
            self._kept = cast("dict[str, Any]", self.connection.get("/session", branch=self.config.branch))
        return self._kept

    def __getattr__(self, name: str) -> Any:
        raise Invalid(f"{self.uri} is behind a server, whose API has no {name.replace('_', ' ')}",
                      hint="do it where the store is")

    @property
    def backend(self) -> str:
        return str(self._state()["backend"])

    @property
    def engine_version(self) -> str:
        return str(self._state()["engine_version"])

    @property
    def keeps_deletions(self) -> bool:
        return bool(self._state()["keeps_deletions"])

    @property
    def keeps_unique(self) -> bool:
        return bool(self._state()["keeps_unique"])

    @property
    def keeps_branches(self) -> bool:
        return bool(self._state()["keeps_branches"])

    def storage_info(self) -> dict[str, Any]:
        """What is known of the store from here."""
        return {"backend": self.backend, "engine_version": self.engine_version, "uri": self.uri, "server": True}

    def head(self) -> int:
        """The newest commit of the branch."""
        self.seen_head = max(self.seen_head, int(self._state(fresh=True)["head"]))
        return int(self._state()["head"])

    def highest(self) -> int:
        """The highest id of any commit."""
        return int(self._state(fresh=True)["highest"])

    def holding(self, commit: int) -> RemoteRepository:
        """The same store: the server finds commits on whichever branch they are."""
        return self

    def state(self) -> object:
        return self.highest()

    def beyond_lines(self) -> Sequence[str]:
        return ()

    def on_branch(self, name: str) -> RemoteRepository:
        """The same store on another branch."""
        from dataclasses import replace

        return RemoteRepository(self.connection, replace(self.config, branch=name))

    def resolve(self, ref: Any) -> int:
        """The commit that a reference or a time names."""
        text = ref if isinstance(ref, str) else f"{self.config.branch}@{ref.isoformat()}"
        return int(self.connection.get("/snapshot", ref=text)["commit"])

    # schemas

    def schemas(self) -> Mapping[tuple[Kind, str], SchemaVersion]:
        """The current version of every type."""
        versions = [SchemaVersion(*one) for one in self._state(fresh=True)["schemas"]]
        return {(one.type_kind, one.type_name): one for one in versions}

    def dropped(self) -> Collection[tuple[Kind, str]]:
        return [(kind, name) for kind, name in self._state(fresh=True)["dropped"]]

    def activation(self, info: TypeInfo) -> int:
        """The first commit that typed reads of a type can see."""
        return int(self._state(fresh=True)["activations"].get(table_of(info), 0))

    def schema_versions(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        """All versions of a type, oldest first."""
        return [SchemaVersion(*one) for one in self._state(fresh=True)["versions"].get(f"{kind}/{name}", ())]

    def activations(self, kind: Kind, name: str) -> Mapping[int, int]:
        """The commits that made the versions of a type the current ones, by version."""
        found = self._state(fresh=True)["activated"].get(f"{kind}/{name}", {})
        return {int(version): int(commit) for version, commit in found.items()}

    # reading

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Each request is answered as of one moment."""
        yield

    def _asked(self, plan: Plan, values: Values) -> dict[str, Any]:
        infos = [type_info(cls) for cls in plan.types]
        shown = [info for number, info in enumerate(infos) if plan.relations or number % 2 == 0]
        return {"types": schemas_for(infos), "plan": plan_wire.encode(plan), "values": plan_wire.encode(values),
                "columns": [[column.stored for column in info.all_columns] for info in shown],
                "branch": self.config.branch}  # fmt: skip

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        """The answer of the server, row by row."""
        yield from self.connection.ask("/session/run", self._asked(plan, values))

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        """The same as an Arrow table."""
        import pyarrow as pa

        connection = self.connection
        answer = connection.transport.request(
            "POST", f"{connection.address.path}/session/run", body={**self._asked(plan, values), "arrow": True},
            headers={"accept": f"{ARROW}, application/vnd.ontolake+json;q=0.1"}, changes=False)
        names = [column.name for column in type_info(plan.root).all_columns]
        with pa.ipc.open_stream(pa.py_buffer(answer.body)) as reader:
            table = reader.read_all()
        behind = [name for name in table.column_names if name not in names]
        return table.select([*(name for name in names if name in table.column_names), *behind])

    def commits(self, *, since: int = 0, until: int | None = None, limit: int | None = None) -> Iterator[Commit[int]]:
        """Commits in `(since, until]`, newest first."""
        from itertools import islice

        found = self.connection.pages("/commits", "commits", since=since, until=until, branch=self.config.branch)
        return islice(found, limit)

    def commit(self, id: int) -> Commit[int]:
        """One commit, on whichever branch. Raises `UnknownCommitError`."""
        try:
            return cast("Commit[int]", self.connection.get(f"/commits/@{id}"))
        except UnknownHistoryCommit:
            raise UnknownCommitError(id) from None

    # writing

    def take_difference(
        self, intents: Intents, metadata: Mapping[str, Any], queue: Any, expected_head: int | None
    ) -> int | None:  # fmt: skip
        """Let the server commit what differs. Raises what a commit raises there."""
        if queue is not None:
            raise Invalid("events cannot be queued with a commit over HTTP", hint="send them by themselves")
        if self.config.readonly:
            raise Invalid(f"{self.uri} was opened to be read only", hint="open it without readonly")
        infos = {info.cls: info for info, _ in intents.by_type()}
        infos |= {info.cls: info for info, _ in intents.ends()}
        infos |= {info.cls: info for info, _, _ in intents.completed()}
        body = {"types": schemas_for(infos.values()), "intents": encode_intents(intents), "metadata": dict(metadata),
                "branch": self.config.branch, "expected_head": expected_head,
                "check_endpoints": self.config.check_endpoints}  # fmt: skip
        commit = self.connection.send("POST", "/session/commit", body)["commit"]
        self.seen_head = max(self.seen_head, commit or 0)
        return cast("int | None", commit)

    def close(self) -> None:
        self.connection.close()


def open_remote(uri: str, config: Config) -> Repository:
    """The typed store behind a URL. `config.connect` has options of the connection, such as `token`.

    Raises `Invalid` if another model is there, and what the server raises.
    """
    connection = StoreConnection(uri, write=not config.readonly, options=connect_options(config.connect))
    if connection.info.model != "typed":
        raise Invalid(f"{uri!r} holds {connection.info.described}, and no typed store",
                      hint="open it with ontolake.open")
    return cast(Repository, RemoteRepository(connection, config))
