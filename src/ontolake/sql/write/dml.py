"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE: rows are worked out first, then written with all their index entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.objects import SequenceMeta
from ontolake.sql.catalog.records import ColumnMeta, IndexMeta, Table
from ontolake.sql.errors import (
    DefinitionError,
    SqlError,
    SqlSyntaxError,
    UnknownNameError,
    UnsupportedError,
)  # fmt: skip
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.vectors import stored_list
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.plan.foreign import ForeignTable
from ontolake.sql.plan.queries import Find, QueryPlan
from ontolake.sql.results import Result
from ontolake.sql.syntax.definitions import OVERRIDING
from ontolake.sql.syntax.statements import (
    DIALECT,
    NotConstant,
    Parameters,
    ParsedStatement,
    constant,
    given_value,
    name_of,
    position_of,
)  # fmt: skip
from ontolake.sql.types import Kind, Stored
from ontolake.sql.write import defaults, merge_statement, sequences, small_changes
from ontolake.sql.write.arbiters import arbiters
from ontolake.sql.write.assignments import check_qualified, is_default, is_given, singly
from ontolake.sql.write.returning import (
    ROWS,
    Returning,
    alias_of,
    columns_of_item,
    plain_result,
)
from ontolake.sql.write.row_inserts import RowInsert, row_insert
from ontolake.sql.write.row_writer import RowWriter, Writer
from ontolake.sql.write.rows import Rows, decoded, first_of_each, fitted, together, unique_prefix
from ontolake.sql.write.sequences import Numbers
from ontolake.sql.write.trees import aliased, joined, joined_with, qualified, with_ctes

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

_DEFAULT = object()
EXCLUDED = "excluded"
"""What ON CONFLICT calls the row that was to be inserted."""


class Changer:
    """Runs the statements that change rows, inside one transaction."""

    def __init__(
        self, session: SqlSession, transaction: SqlTransaction, statement: ParsedStatement, parameters: Parameters,
        find: Find, where: Any, given: Mapping[str, pa.Table] = MappingProxyType({}), writer: Writer | None = None,
    ) -> None:  # fmt: skip
        """`given` are rows that names mean before any table; `writer` takes what is to be written."""
        self._session = session
        self._transaction = transaction
        self._statement = statement
        self._parameters = parameters
        self._find = find
        self._where = where
        """The catalog, and what else names lead to tables by: what is prepared holds for the same."""
        self._given = {**statement.given, **given} if statement.given else given
        self._writer: Writer = RowWriter(session.keyspace, transaction) if writer is None else writer
        schema = where[2]
        self._numbers = Numbers(session, transaction, where[1], schema if isinstance(schema, str) else schema[0])

    # INSERT

    def insert(self, tree: exp.Insert) -> Result:
        """Run INSERT."""
        prepared = self._statement.prepared
        if prepared is not None and prepared[0] == self._where and isinstance(prepared[1], RowInsert):
            return self._insert_row(prepared[1])
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        table, _ = self._find(target)
        names = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
        columns = [table.column(name_of(node), position_of(node, self._statement)) for node in names] or table.visible
        if len({column.column_id for column in columns}) != len(columns):
            raise DefinitionError("a column is given twice", sqlstate="42701")
        source = tree.expression
        self._override(columns, tree.meta.get(OVERRIDING), source)
        if (insert := row_insert(table, columns, tree, explicit=bool(names))) is not None:
            if tree is self._statement.tree:
                self._statement.prepared = (self._where, insert)
            return self._insert_row(insert)
        if tree.args.get("default"):
            new = Rows(table, tuples=[self._filled(table, [], [])])
        elif isinstance(source, exp.Values):
            new = self._values(table, columns, source, explicit=bool(names))
        elif isinstance(source, exp.Query):
            new = self._selected(table, columns, with_ctes(source, tree), explicit=bool(names))
        else:
            raise UnsupportedError("this form of INSERT is not supported")
        new.complete()
        conflict = tree.args.get("conflict")
        if conflict is None:
            self._writer.insert(new)
            done = new
        else:
            done = self._insert_or(table, new, conflict, target)
        return self._returned("INSERT", table, done, self._returning(tree, table, target, ()), ())

    def _override(self, columns: list[ColumnMeta], overriding: str | None, source: exp.Expr | None) -> None:
        """Check that no value is given for columns that have their own. Raises `DefinitionError`."""
        for place, column in enumerate(columns):
            if overriding == "USER" and column.counting:
                if isinstance(source, exp.Values):
                    for row in source.expressions:
                        if isinstance(row, exp.Tuple) and place < len(row.expressions):
                            row.expressions[place].replace(exp.var("DEFAULT"))
                continue
            if not column.generated and (column.counting != "always" or overriding == "SYSTEM"):
                continue
            if isinstance(source, exp.Values):
                cells = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in source.expressions]
                given = any(place < len(row) and not is_default(row[place]) for row in cells)
            else:
                given = isinstance(source, exp.Query) and place < len(source.selects)
            if given:
                defaults.check_given(column)

    def _insert_row(self, insert: RowInsert) -> Result:
        new = Rows(insert.table, tuples=[insert.row(self._parameters, self._numbers)])
        self._writer.insert(new)
        return Result("INSERT 1", 1) if insert.returned is None else \
            plain_result("INSERT", new, *insert.returned)  # fmt: skip

    def _values(self, table: Table, columns: Sequence[ColumnMeta], source: exp.Values, *, explicit: bool) -> Rows:
        given: list[list[Any]] = []
        computed: list[tuple[int, int, exp.Expr]] = []
        for number, node in enumerate(source.expressions):
            single = node.this if isinstance(node, exp.Paren) else node
            cells = node.expressions if isinstance(node, exp.Tuple) else [single]
            self._check_width(columns, len(cells), explicit)
            if given and len(cells) != len(given[0]):
                raise SqlSyntaxError("the rows of VALUES have different lengths", position=self._statement.position(0),
                                     hint="give every row as many values as the first; DEFAULT stands for a default")
            row: list[Any] = []
            for place, cell in enumerate(cells):
                if isinstance(cell, exp.Placeholder):
                    row.append(columns[place].type.store(given_value(cell, self._parameters)))
                elif is_default(cell):
                    row.append(_DEFAULT)
                else:
                    try:
                        row.append(columns[place].type.store(constant(cell)))
                    except NotConstant:
                        row.append(None)
                        computed.append((number, place, cell))
            given.append(row)
        if computed:
            self._compute(columns, given, computed)
        if columns == table.columns and all(len(row) == len(columns) and _DEFAULT not in row for row in given):
            return Rows(table, tuples=given)
        return Rows(table, tuples=[self._filled(table, columns, row) for row in given])

    def _check_width(self, columns: Sequence[ColumnMeta], found: int, explicit: bool) -> None:
        if found > len(columns) or (explicit and found < len(columns)):
            raise SqlSyntaxError(f"INSERT has {found} values for {len(columns)} columns",
                                 position=self._statement.position(0))

    def _compute(
        self, columns: Sequence[ColumnMeta], given: list[list[Any]], computed: list[tuple[int, int, exp.Expr]]
    ) -> None:
        """Fill in the values that are expressions."""
        wanted = exp.Select(expressions=[exp.alias_(cell.copy(), f"v{n}", quoted=True)
                                         for n, (_, _, cell) in enumerate(computed)])  # fmt: skip
        found = self._query(wanted).typed()
        for n, (number, place, _) in enumerate(computed):
            column = columns[place]
            given[number][place] = stored_list(column.type, coerced(column, found.column(n)))[0]

    def _filled(self, table: Table, columns: Sequence[ColumnMeta], row: Sequence[Any]) -> list[Stored]:
        """A whole row, with defaults where no value is given."""
        given = {column.column_id: cell for column, cell in zip(columns, row, strict=False) if cell is not _DEFAULT}
        return [given[column.column_id] if column.column_id in given else defaults.value(column, self._numbers)
                for column in table.columns]  # fmt: skip

    def _selected(self, table: Table, columns: Sequence[ColumnMeta], source: exp.Expr, *, explicit: bool) -> Rows:
        found = self._query(source).typed()
        self._check_width(columns, found.num_columns, explicit)
        given = {column.column_id: coerced(column, found.column(n))
                 for n, column in enumerate(columns[: found.num_columns])}  # fmt: skip
        return self._new_rows(table, given, found.num_rows)

    # ON CONFLICT

    def _insert_or(self, table: Table, new: Rows, conflict: exp.OnConflict, target: exp.Table) -> Rows:
        """Insert the rows that are new, and leave or change the others. Returns those that were written."""
        _check_kept(table, "ON CONFLICT", "use MERGE")
        new.check()
        nothing = "NOTHING" in str(conflict.args.get("action") or "").upper()
        indexes = self._statement.once(self._where, conflict, "arbiters",
                                       lambda: self._checked_arbiters(table, conflict, nothing))  # fmt: skip
        there, fresh, pairs, second = self._sorted_out(new, indexes)
        if second and not nothing:
            raise SqlError("ON CONFLICT DO UPDATE cannot change a row a second time", sqlstate="21000",
                           hint="give every key once")
        added = new.take(fresh)
        if len(added):
            self._writer.insert(added)
        if nothing or not pairs:
            return added
        changed = self._update_conflicting(table, decoded(table, there), new.take(pairs), conflict, target)
        return together(table, added, changed)

    def _checked_arbiters(self, table: Table, conflict: exp.OnConflict, nothing: bool) -> list[IndexMeta | None]:
        """What a conflict is looked for in, once the names of the clause are known to mean something."""
        indexes = arbiters(table, conflict, self._statement)
        if not nothing and not conflict.args.get("conflict_keys") and conflict.args.get("constraint") is None:
            raise SqlSyntaxError("ON CONFLICT DO UPDATE needs the columns that may conflict", sqlstate="42601",
                                 hint="write ON CONFLICT (columns) DO UPDATE …")
        for column in conflict.find_all(exp.Column):
            owner = name_of(column.args.get("table"))
            if column.find_ancestor(exp.Query) is None and owner in ("", EXCLUDED, table.name) \
                    and not is_default(column):  # fmt: skip
                table.column(name_of(column.this), position_of(column, self._statement))
        check_qualified(conflict, table, self._statement)
        return indexes

    def _sorted_out(
        self, new: Rows, indexes: Sequence[IndexMeta | None]
    ) -> tuple[list[bytes], list[int], list[int], bool]:
        """Old values of rows in conflict, places of rows without and with a conflict, and whether one came twice."""
        keyspace, table = self._session.keyspace, new.table
        found = new.keys()
        stored = keyspace.get_many(found) if None in indexes else {}
        seen: set[bytes] = set()
        there: list[bytes] = []
        fresh: list[int] = []
        pairs: list[int] = []
        second = False
        for number, key in enumerate(found):
            marks = [key] if None in indexes else []
            old = stored.get(key)
            for index in indexes:
                if index is not None and (begin := unique_prefix(new, number, index)) is not None:
                    marks.append(begin)
                    old = old or self._by_unique(table, index, begin)
            if any(mark in seen for mark in marks):
                second = True
                continue
            if old is None or len(indexes) == 1:
                seen.update(marks)
            if old is None:
                fresh.append(number)
            else:
                there.append(old)
                pairs.append(number)
        return there, fresh, pairs, second

    def _by_unique(self, table: Table, index: IndexMeta, begin: bytes) -> bytes | None:
        """The row that has an entry with these values in a unique index."""
        for batch in self._session.keyspace.scan(KeySpan(begin, keys.after(begin)), keys=True, limit=1):
            assert batch.keys is not None
            entry = batch.keys.to_list()[0]
            return self._session.keyspace.get(table.prefix + entry[len(begin) :])
        return None

    def _update_conflicting(
        self, table: Table, old: Rows, given: Rows, conflict: exp.OnConflict, target: exp.Table
    ) -> Rows:
        alias = alias_of(target)
        where = conflict.args.get("where")
        assigned = self._statement.once(self._where, conflict, "assigned",
                                        lambda: self._assignments(table, conflict.expressions))  # fmt: skip
        change = self._statement.once(self._where, conflict, "change", lambda: small_changes.conflict_change(
            table, {alias: 0, "": 0, EXCLUDED: 1}, assigned, None if where is None else where.this))
        few = None if change is None else change.rows(old, given, self._parameters)
        if few is not None:
            self._writer.update(*few)
            return few[1]
        numbers = pa.array(range(len(old)), pa.int64())
        rows = {"old$": old.arrow().append_column("n$", numbers), "new$": given.arrow().append_column("n$", numbers)}
        outputs: list[exp.Expr] = [qualified(alias, column.name, f"o{n}") for n, column in enumerate(table.columns)]
        outputs += [exp.alias_(node.copy(), f"n{n}") for n, node in enumerate(small_changes.computed(assigned))]
        query = (exp.Select(expressions=outputs).from_(aliased("old$", alias))
                 .join(aliased("new$", EXCLUDED), join_type="inner",
                       on=exp.EQ(this=qualified(alias, "n$"), expression=qualified(EXCLUDED, "n$")))
                 .order_by(qualified(alias, "n$")))  # fmt: skip
        if where is not None:
            query = query.where(where.this.copy())
        found = self._query(query, rows).typed()
        before = self._kept(table, found.columns[: len(table.columns)])
        return self._write_changed(table, before, assigned, found, len(table.columns))

    # UPDATE and DELETE

    def update(self, tree: exp.Update) -> Result:
        """Run UPDATE."""
        table, assigned, values, same = self._statement.once(
            self._where, tree, "update", lambda: self._described(tree))
        others = joined(tree.args.get("from_"))
        returning = self._returning(tree, table, tree.this, others)
        found = self._matching(tree, table, [*values, *(returning.extra if returning else ())], others)
        alone = not others and not (returning and returning.extra)
        if same and alone and found.stored() is not None:
            done = self._write_given(table, self._old(table, found), assigned)
            return self._returned("UPDATE", table, done, returning, ())
        if not same and alone and (
                few := small_changes.changed_rows(table, assigned, found, self._fixed_value)) is not None:  # fmt: skip
            self._writer.update(*few)
            return self._returned("UPDATE", table, few[1], returning, ())
        arrow, width = found.typed(), len(table.columns)
        if others:
            arrow = first_of_each(table, arrow)
        old = self._kept(table, arrow.columns[:width])
        done = self._write_given(table, old, assigned) if same else \
            self._write_changed(table, old, assigned, arrow, width)
        return self._returned("UPDATE", table, done, returning, arrow.columns[width + len(values) :])

    def _described(
        self, tree: exp.Update
    ) -> tuple[Table, list[tuple[ColumnMeta, exp.Expr | None]], list[exp.Expr], bool]:
        """The table of an UPDATE, what columns become, the values that depend on the row, and whether none does."""
        table, _ = self._find(tree.this)
        assigned = self._assignments(table, tree.expressions)
        same = all(defaults.is_fixed(column) if node is None else is_given(node) for column, node in assigned)
        return table, assigned, small_changes.computed(assigned), same

    def delete(self, tree: exp.Delete) -> Result:
        """Run DELETE."""
        table, _ = self._find(tree.this)
        others = joined(tree.args.get("using"))
        returning = self._returning(tree, table, tree.this, others)
        found = self._matching(tree, table, returning.extra if returning else (), others)
        extra: list[pa.ChunkedArray] = []
        if others:
            arrow, width = first_of_each(table, found.typed()), len(table.columns)
            old, extra = self._kept(table, arrow.columns[:width]), arrow.columns[width:]
        else:
            old = self._old(table, found)
        self._writer.delete(old)
        return self._returned("DELETE", table, old, returning, extra)

    def truncate(self, tree: exp.TruncateTable) -> Result:
        """Run TRUNCATE: delete all rows, with CASCADE also those of tables that refer to them."""
        catalog = self._session.fresh_catalog(self._transaction)
        going = {table.id: table for table in (self._find(node)[0] for node in tree.expressions)}
        for table in going.values():
            _check_kept(table, "TRUNCATE", "use DELETE")
        waiting = list(going.values())
        while waiting:
            table = waiting.pop()
            for foreign in table.referenced_by:
                if foreign.table_id in going:
                    continue
                if (tree.args.get("option") or "").upper() != "CASCADE":
                    raise UnsupportedError(f"{table.full_name} cannot be truncated: {foreign.name} refers to it",
                                           hint="truncate the other table too, or add CASCADE")
                going[foreign.table_id] = catalog.by_id[foreign.table_id]
                waiting.append(going[foreign.table_id])
        noted = len(self._transaction.references)
        for table in going.values():
            for batch in list(self._session.keyspace.scan(table.span)):
                self._writer.delete(decoded(table, batch.values))
            if tree.args.get("identity") == "RESTART":
                for part in table.parts:
                    if isinstance(part, SequenceMeta):
                        self._numbers.set(part.object_id, part.start, called=False)
        del self._transaction.references[noted:]  # nothing is left that could refer to a row
        return Result("TRUNCATE TABLE", 0)

    def _matching(
        self, tree: exp.Expr, table: Table, extra: Sequence[exp.Expr | None], others: Sequence[exp.Expr]
    ) -> Result:
        """The rows that a statement is about, with more outputs behind them. With `others` a row may come twice."""
        prepared = self._statement.prepared if tree is self._statement.tree and not self._given else None
        if prepared is not None and prepared[0] == self._where:
            plan: QueryPlan = prepared[1]
            return plan.run(self._session, self._parameters)
        alias = alias_of(tree.this)
        outputs: list[exp.Expr] = [qualified(alias, column.name, f"o{n}") for n, column in enumerate(table.columns)]
        outputs += [exp.alias_(exp.Null() if node is None else node.copy(), f"n{n}") for n, node in enumerate(extra)]
        query = joined_with(exp.Select(expressions=outputs, from_=exp.From(this=tree.this.copy())), others)
        if tree.args.get("where") is not None:
            query.set("where", tree.args["where"].copy())
        whole = with_ctes(query, tree)
        if tree is not self._statement.tree or self._given or sequences.calls_in(whole):
            return self._query(whole)
        plan = QueryPlan(self._statement, whole, self._find)
        if all(source.at is None for source in plan.sources):
            self._statement.prepared = (self._where, plan)
        return plan.run(self._session, self._parameters)

    def _old(self, table: Table, found: Result) -> Rows:
        stored = found.stored()
        return Rows(table, tuples=stored) if stored is not None else self._kept(table, found.typed().columns)

    def _kept(self, table: Table, columns: Sequence[pa.ChunkedArray]) -> Rows:
        """Rows that a query gave, as they are kept: a query gives all numbers of a column one scale."""
        found = fitted(table, columns)
        if not len(found) or isinstance(table, ForeignTable) or all(
                (column.type.item or column.type).kind != Kind.NUMERIC for column in table.columns):
            return found
        keys_of = found.keys()
        there = self._session.keyspace.get_many(keys_of)
        return decoded(table, [there[key] for key in keys_of])

    def _assignments(
        self, table: Table, nodes: Sequence[exp.Expr]
    ) -> list[tuple[ColumnMeta, exp.Expr | None]]:
        """What each column becomes; None for its default."""
        found: list[tuple[ColumnMeta, exp.Expr | None]] = []
        for node in chain.from_iterable(map(singly, nodes)):
            if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column):
                raise UnsupportedError(f"SET {node.sql(DIALECT)} is not supported", hint="write SET column = value")
            if node.this.args.get("table") is not None:
                raise UnknownNameError(f"{table.full_name} has no column {name_of(node.this.args['table'])}",
                                       sqlstate="42703", position=position_of(node.this, self._statement),
                                       hint="SET names columns without their table")  # fmt: skip
            column = table.column(name_of(node.this.this), position_of(node.this, self._statement))
            if any(column is other for other, _ in found):
                raise DefinitionError(f"{column.name} is set twice", sqlstate="42601")
            if not is_default(node.expression):
                defaults.check_given(column)
            found.append((column, None if is_default(node.expression) else node.expression))
        return found

    def _write_given(
        self, table: Table, old: Rows, assigned: Sequence[tuple[ColumnMeta, exp.Expr | None]]
    ) -> Rows:
        """Change rows to values that are the same for all of them."""
        given = {column.column_id: self._fixed_value(column, node) for column, node in assigned}
        if not old.few:
            values = {id: defaults.repeated(table.by_id[id], value, len(old)) for id, value in given.items()}
            new = self._with_values(table, old, values)
            self._writer.update(old, new)
            return new
        new = Rows(table, tuples=[[given.get(column.column_id, cell)
                                   for column, cell in zip(table.columns, row, strict=True)] for row in old.tuples])
        self._writer.update(old, new)
        return new

    def _fixed_value(self, column: ColumnMeta, node: exp.Expr | None) -> Stored:
        """What a column becomes if that does not depend on the row; without a node it is its default."""
        return defaults.value(column, self._numbers) if node is None else column.type.store(self._constant(node))

    def _write_changed(
        self, table: Table, old: Rows, assigned: Sequence[tuple[ColumnMeta, exp.Expr | None]], found: pa.Table,
        skip: int,
    ) -> Rows:  # fmt: skip
        """Change rows to values of which those that depend on the row were worked out."""
        columns = iter(found.columns[skip:])
        values = {column.column_id: defaults.values(column, len(old), self._numbers) if node is None else
                  defaults.repeated(column, self._fixed_value(column, node), len(old)) if is_given(node) else
                  coerced(column, next(columns))
                  for column, node in assigned}  # fmt: skip
        new = self._with_values(table, old, values)
        self._writer.update(old, new)
        return new

    # MERGE

    def merge(self, tree: exp.Merge) -> Result:
        """Run MERGE."""
        table, _ = self._find(tree.this)
        clauses = merge_statement.clauses_of(tree, table, self._assignments)
        query = merge_statement.merge_query(tree, table, alias_of(tree.this), clauses)
        found = self._query(with_ctes(query, tree)).typed()
        width = len(table.columns)
        chosen = found.column(width)
        places = {name: n for n, name in enumerate(found.column_names)}
        old = fitted(table, found.columns[:width])
        steps = []
        for n, clause in enumerate(clauses):
            rows = merge_statement.numbers(chosen, n)
            taken = found.take(pa.array(rows, pa.int64()))
            values = {column.column_id: defaults.values(column, len(rows), self._numbers) if node is None else
                      coerced(column, taken.column(places[f"v{n}_{m}"]), lenient=is_given(node))
                      for m, (column, node) in enumerate(clause.assigned)}  # fmt: skip
            steps.append((clause.action, rows, values))
        changed = [n for action, rows, _ in steps if action in ("update", "delete") for n in rows]
        merge_statement.check_once(old.take(changed).keys() if changed else [])
        for action, rows, values in steps:
            if not rows or action == "nothing":
                continue
            if action == "delete":
                self._writer.delete(old.take(rows))
            elif action == "update":
                before = old.take(rows)
                self._writer.update(before, self._with_values(table, before, values))
            else:
                new = self._new_rows(table, values, len(rows))
                new.complete()
                self._writer.insert(new)
        count = sum(len(rows) for action, rows, _ in steps if action != "nothing")
        return Result(f"MERGE {count}", count)

    def run(self, tree: exp.Expr) -> Result:
        """Run a statement that changes rows, or a query."""
        kinds: dict[type[exp.Expr], Callable[[Any], Result]] = {
            exp.Insert: self.insert, exp.Update: self.update, exp.Delete: self.delete, exp.Merge: self.merge,
            exp.TruncateTable: self.truncate}  # fmt: skip
        run = kinds.get(type(tree))
        return self._query(tree) if run is None else run(tree)

    # shared

    def _new_rows(self, table: Table, values: Mapping[int, pa.Array], count: int) -> Rows:
        """New rows of the values of columns by id, and of defaults."""
        return Rows(table, columns=[values[column.column_id] if column.column_id in values
                                    else defaults.values(column, count, self._numbers)
                                    for column in table.columns])  # fmt: skip

    def _with_values(self, table: Table, old: Rows, values: Mapping[int, pa.Array]) -> Rows:
        """Rows with other values in some columns, by id."""
        return Rows(table, columns=[values.get(column.column_id, held)
                                    for column, held in zip(table.columns, old.columns, strict=True)])  # fmt: skip

    def _constant(self, node: exp.Expr) -> Any:
        if isinstance(node, exp.Placeholder):
            return given_value(node, self._parameters)
        return constant(node)

    def _query(self, tree: exp.Expr, given: Mapping[str, pa.Table] = MappingProxyType({})) -> Result:
        def planned(tree: exp.Expr) -> Result:
            plan = QueryPlan(self._statement, tree, self._find, {**self._given, **given})
            return plan.run(self._session, self._parameters)

        return sequences.query(tree, self._numbers, planned) if sequences.calls_in(tree) else planned(tree)

    def _returning(
        self, tree: exp.Expr, table: Table, target: exp.Table, others: Sequence[exp.Expr]
    ) -> Returning | None:
        """The RETURNING of a statement, if it has one."""
        clause = tree.args.get("returning")
        if clause is None:
            return None

        def columns_of(item: exp.Expr) -> list[str]:
            return columns_of_item(item, tree, self._given, self._find)

        items = [each for item in others
                 for each in (item, *(join.this for join in item.args.get("joins") or ()))]  # fmt: skip
        return Returning(clause, table, target, items, columns_of, self._statement)

    def _returned(
        self, verb: str, table: Table, done: Rows, returning: Returning | None, extra: Sequence[pa.ChunkedArray]
    ) -> Result:
        status = f"{verb} {len(done)}"
        if returning is None:
            return Result(status, len(done))
        if done.few and not extra and returning.plain is not None:
            return plain_result(verb, done, *returning.plain)
        found = self._query(returning.query(), {ROWS: returning.rows(done.arrow(), extra)})
        return Result(status, len(done), table=found.typed().rename_columns(returning.names))


def _check_kept(table: Table, what: str, hint: str) -> None:
    """Raise `UnsupportedError` for a table that something else keeps."""
    if isinstance(table, ForeignTable):
        raise UnsupportedError(f"{what} is not supported for {table.full_name}, which is kept elsewhere", hint=hint)
