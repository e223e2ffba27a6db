"""What references mean in a space: branches, tags, seqs and times."""

from __future__ import annotations

from datetime import UTC, datetime

from ontolake.documents.database import SpaceDatabase, row
from ontolake.documents.errors import ProtocolError, UnknownBranchError, UnknownCommitError, own_errors
from ontolake.documents.history.ancestors import START, Commits
from ontolake.documents.names import check_branch_text, is_seq
from ontolake.documents.write.transactions import DELETED
from ontolake.errors import Invalid
from ontolake.history import Point, Ref
from ontolake.history.dag import is_ancestor
from ontolake.history.refs import resolve

FIRST = ""
"""The branch that every space starts with, and that is never deleted. It is called `main` too."""

_STATUS = "SELECT status FROM branch WHERE name = ?"
_TAG = "SELECT branch, seq FROM tag WHERE name = ?"
_BEFORE = """\
SELECT seq FROM "commit" WHERE branch = ? AND seq <= ? AND created_at <= ? ORDER BY seq DESC LIMIT 1"""


class SpaceRefs:
    """A space as `history.refs.resolve` asks it, at one moment: `seq` is the newest commit that counts."""

    first = FIRST

    def __init__(self, database: SpaceDatabase, commits: Commits | None = None) -> None:
        self._database = database
        self.commits = Commits(database) if commits is None else commits
        with database.joined:
            self.seq = database.last_seq()

    def resolve(self, ref: Ref | str | int) -> Point[int]:
        """The commit that a reference or a seq names. Raises what `history.refs.resolve` does."""
        if isinstance(ref, int):
            if not is_seq(ref):
                raise ProtocolError(f"a seq is an integer, 0 or more, not {ref!r}")
            return self.find(str(ref), None)
        if isinstance(ref, str):
            # Old spaces have branches whose names look like references to something else.
            head = self.head(ref)
            if head is not None:
                return Point(self._named(ref), head)
        with own_errors():
            point = resolve(ref, self)
        return Point(self._named(point.branch), point.commit)

    def _named(self, branch: str) -> str:
        with self._database.joined:
            return self._database.name(self._database.line(branch))

    def head(self, branch: str) -> int | None:
        check_branch_text(branch)
        with self._database.joined as connection:
            try:
                line = self._database.line(branch)
            except UnknownBranchError:
                return None
            if line and row(connection, _STATUS, (line,))[0] == DELETED and self.tagged(branch) is not None:
                return None
            return self.commits.head(line, self.seq)

    def tagged(self, name: str) -> Point[int] | None:
        with self._database.joined as connection:
            found = row(connection, _TAG, (name,)) if self._database.has_table("tag") else None
            return None if found is None else Point(self._database.name(found[0]), found[1])

    def find(self, text: str, branch: str | None) -> Point[int]:
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Invalid(f"{text!r} is not a seq", hint="commits of a space are numbered from 1")
        seq = int(text)
        if seq > self.seq:
            raise UnknownCommitError(seq, branch, reason=f"the newest one is {self.seq}")
        with self._database.joined:
            if seq == START:
                return Point(FIRST if branch is None else branch, START)
            line = self.commits.line(seq)
            if branch is None:
                return Point(self._database.name(line), seq)
            own = self._database.line(branch)
            if dict(self._database.view(own, self.seq)).get(line, 0) < seq and not is_ancestor(
                    self.commits, seq, self.commits.head(own, self.seq)):
                raise UnknownCommitError(seq, branch, reason="it was made elsewhere")
            return Point(branch, seq)

    def before(self, time: datetime, branch: str) -> int:
        by = time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
        with self._database.joined as connection:
            for line, limit in self._database.view(self._database.line(branch), self.seq):
                found = row(connection, _BEFORE, (line, limit, by))
                if found is not None:
                    return int(found[0])
        raise UnknownCommitError(time.isoformat(), branch, reason="the first one was made later")

    def parent(self, point: Point[int]) -> int | None:
        if point.commit == START:
            return None
        return self.commits.parents(point.commit)[0] or None
