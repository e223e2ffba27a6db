"""SQL statements as a server takes them: what each one touches, and which ones nobody may send.

A request over HTTP is one transaction and keeps nothing behind it, so what would outlive it (SET, PREPARE, cursors,
temporary tables, BEGIN) is refused; a session of PostgreSQL's protocol takes it. Whatever reads or writes files of the
server is refused to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from ontolake import stores
from ontolake.errors import OntolakeError
from ontolake.server.handles import ServedStore
from ontolake.server.rights import TokenScope, Touch
from ontolake.sql.commands.temporary import is_temporary
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.conflict_table import is_target
from ontolake.sql.syntax.statements import NotConstant, Parameters, ParsedStatement, bound, constant, given_value
from ontolake.sql.write.sequences import calls_in

READING = frozenset({"select", "explain", "show", "upkeep"})
"""Statements that read, unless something in them writes."""
_WRITING = frozenset({"insert", "update", "delete", "truncate", "merge", "chain", "create", "drop", "alter", "define"})
_DEFINING = frozenset({"create", "drop", "alter", "define", "call", "truncate"})
_MARKS = frozenset({"savepoint", "rollback to", "release"})
_REFUSED = {
    "copy": "COPY would use files of the server; write rows with POST …/rows, and read them in the format you accept",
    "use": "name tables with their database", "set": "send timeout with the request",
    "begin": "a request is one transaction", "begin read only": "a request is one transaction",
    "commit": "a request is one transaction", "rollback": "a request is one transaction",
}  # fmt: skip
_OUTLIVES = "nothing outlives a request"
_SESSION = frozenset({
    "use", "set", "reset", "discard", "begin", "begin read only", "commit", "rollback", "prepare", "deallocate",
    "fetch", "move", "close", "lock", "set transaction", "set characteristics", "listen", "unlisten", "notify",
})  # fmt: skip
"""Statements that a session takes besides, and that touch no rows: EXECUTE and DECLARE are for what they run."""
_HISTORY_OF_ALL = frozenset({"onto_branches", "onto_tags"})


class StatementUse:
    """What the statements of a request do: `touches`, and whether they write."""

    def __init__(
        self, store: ServedStore, statements: Sequence[ParsedStatement], params: Parameters, branch: str,
        prepared: Callable[[str], ParsedStatement] | None = None,
    ) -> None:  # fmt: skip
        """`prepared` finds the prepared statements of a session; None for a request, which has none.

        Raises `UnsupportedError` for a statement that is not taken.
        """
        self._store, self._params, self._branch = store, params, branch
        self._prepared = prepared
        self.is_fixed = True
        """Whether other parameters would touch the same."""
        self.touches: list[Touch] = [Touch(TokenScope.READ, branch)]
        for statement in statements:
            self._add(statement, alone=len(statements) == 1)

    @property
    def writes(self) -> bool:
        return any(touch.scope > TokenScope.READ for touch in self.touches)

    def _add(self, statement: ParsedStatement, *, alone: bool) -> None:
        kind, tree = statement.kind, statement.tree
        if self._store.model is not stores.SQL:
            self._check_elsewhere(statement)
        if kind == "call":
            assert tree is not None
            self.touches += self._called(statement.names[0], tree)
        elif kind == "explain" or (kind == "declare" and self._prepared is not None):
            assert statement.inner is not None
            self._add(statement.inner, alone=alone)
        elif kind == "execute" and self._prepared is not None:
            self.is_fixed = False
            self._add(self._prepared(statement.names[0]), alone=alone)
        elif kind == "copy" and self._prepared is not None:
            self._copy(statement)
        elif kind in _WRITING and not is_temporary(tree):
            conflicts = isinstance(tree, exp.Update) and is_target(tree)
            self.touches.append(Touch(TokenScope.MERGE if conflicts else TokenScope.WRITE, self._branch))
        elif not self._is_taken(kind, alone=alone):
            what = "a temporary table" if kind in _WRITING else kind.upper()
            raise UnsupportedError(f"{what} is not taken in a request", position=statement.position(0),
                                   hint=_REFUSED.get(kind, _OUTLIVES))
        if tree is not None and kind != "call":
            self.touches += self._history(tree)
            if tree.find(exp.DML) is not None or calls_in(tree):
                self.touches.append(Touch(TokenScope.WRITE, self._branch))

    def _check_elsewhere(self, statement: ParsedStatement) -> None:
        """Raise `UnsupportedError` for what only a store of SQL tables has: definitions, and its own history."""
        tree = statement.tree
        functions = [] if tree is None else [
            str(table.this.this) for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Anonymous)]
        if (statement.kind in _DEFINING and not is_temporary(tree)) or any(
                name.lower().startswith("onto_") for name in functions):  # fmt: skip
            raise UnsupportedError(
                f"{self._store.name} is {self._store.model.described}: its tables can be read and, if it is typed, "
                "changed here", position=statement.position(0), hint="use onto, the HTTP API or the library")

    def _is_taken(self, kind: str, *, alone: bool) -> bool:
        """Whether a statement that writes no rows of the store is taken."""
        if self._prepared is not None:
            return kind in READING or kind in _SESSION or kind in _MARKS or kind in _WRITING
        return kind in READING or (kind in _MARKS and not alone)

    def _copy(self, statement: ParsedStatement) -> None:
        """What COPY from or to the client touches."""
        if statement.options["file"] is not None:
            raise UnsupportedError("COPY with a file of the server is not taken", position=statement.position(0),
                                   hint="COPY … FROM STDIN and TO STDOUT; \\copy in psql")
        if statement.options["into"]:
            self.touches.append(Touch(TokenScope.WRITE, self._branch))
        elif statement.inner is not None:
            self._add(statement.inner, alone=True)

    def _called(self, name: str, tree: exp.Expr) -> Iterator[Touch]:
        """What a procedure touches."""
        function = tree.find(exp.Anonymous)
        arguments = [] if function is None else [self._value(one) for one in function.expressions]
        first = arguments[0] if arguments else None
        named = first if isinstance(first, str) else None
        if name == "onto_checkout":
            raise UnsupportedError("CALL onto_checkout is not taken in a request", hint="send branch with the request")
        if name == "onto_merge":
            yield Touch(TokenScope.MERGE, self._branch)
            yield Touch(TokenScope.READ, None if named is None else self._store.branch_of(named))
        elif name == "onto_branch":
            yield Touch(TokenScope.WRITE, named)
        else:
            yield Touch(TokenScope.WRITE, self._branch)
            if name != "onto_tag":
                yield Touch(TokenScope.READ, self._of_ref(first))
            elif len(arguments) > 1:
                yield Touch(TokenScope.WRITE, self._of_ref(arguments[1]))

    def _history(self, tree: exp.Expr) -> Iterator[Touch]:
        """What functions of history read of other branches."""
        for table in tree.find_all(exp.Table):
            if not isinstance(table.this, exp.Anonymous):
                continue
            name, arguments = str(table.this.this).lower(), table.this.expressions
            if name in _HISTORY_OF_ALL:
                yield Touch(TokenScope.READ, None)
            elif name == "onto_diff":
                yield from (Touch(TokenScope.READ, self._of_ref(self._value(one))) for one in arguments[:2])
            elif name == "onto_log" and arguments:
                yield Touch(TokenScope.READ, self._of_ref(self._value(arguments[0])))
            elif name == "onto_blame" and len(arguments) > 2:
                yield Touch(TokenScope.READ, self._of_ref(self._value(arguments[2])))

    def _of_ref(self, ref: Any) -> str | None:
        """The branch that a reference reads; None, for all, if only a run could tell."""
        try:
            return self._store.branch_of(ref) if isinstance(ref, str) else None
        except OntolakeError:
            return None

    def _value(self, node: exp.Expr) -> Any:
        """A constant; None for an expression, which may have another value when it is run."""
        self.is_fixed = self.is_fixed and node.find(exp.Placeholder) is None
        try:
            if isinstance(node, exp.Placeholder):
                return given_value(node, self._params)
            return constant(bound(node, self._params))
        except (NotConstant, OntolakeError, LookupError, TypeError):
            return None
