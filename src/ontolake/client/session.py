"""`RemoteSession`: what `Session("http://host:8400/shop")` gives. It commits and queries as on a file."""

from __future__ import annotations

from typing import Any, NoReturn, Self, cast

from ontolake.client.repository import RemoteRepository
from ontolake.client.store import ClientStore
from ontolake.errors import Invalid
from ontolake.history import Change
from ontolake.ontology.session import Session
from ontolake.ontology.versioned import table_of


class RemoteSession(ClientStore, Session):  # type: ignore[misc]
    """A session with a typed store behind a server. Tokens come from `ONTO_TOKEN`, the credentials file, or from
    `config={"connect": {"token": …}}`."""

    def __init__(self, datastore_uri: str, *arguments: Any, **options: Any) -> None:
        Session.__init__(self, datastore_uri, *arguments, **options)
        self._attach(cast(RemoteRepository, self.repository).connection, self.config.branch)

    def changes(self, since: Any = 0, until: Any = None, *, branch: str | None = None) -> Any:
        """What the commits in `(since, until]` did to rows, oldest first."""
        return ClientStore.changes(self, since, until, branch=branch)

    def list_commit_changes(self, commit_id: int) -> list[Change[int]]:
        """What a commit did to rows of this session's types. Raises `UnknownCommitError`."""
        self.get_commit(commit_id)
        tables = {table_of(info) for info in self.types}
        found = self.connection.pages(f"/commits/@{commit_id}/changes", "changes")
        return [change for change in found if change.table in tables]

    def migrate(self, **_: Any) -> NoReturn:
        """Refused: schemas change where the store is."""
        raise Invalid(f"{self.url} is behind a server, and is not migrated over HTTP",
                      hint="run onto migrate where the store is, while the server is stopped")

    def close(self) -> None:
        """Close the connections. What was declared and not committed is forgotten."""
        Session.close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception: type[BaseException] | None, *rest: object) -> None:
        Session.__exit__(self, exception, *rest)
