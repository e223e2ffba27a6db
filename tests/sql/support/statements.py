"""A generator of SQL statements: schemas, changes and queries. PostgreSQL takes most of them, and refuses some.

The same seed gives the same statements. Queries order by all of their outputs, or are compared as sets.
"""

from __future__ import annotations

import random
from typing import NamedTuple

INTEGER, TEXT, BOOLEAN, DOUBLE, DECIMAL, DATE, TIMESTAMP = (
    "BIGINT", "TEXT", "BOOLEAN", "DOUBLE PRECISION", "NUMERIC(12, 2)", "DATE", "TIMESTAMP")  # fmt: skip
SHORT, SMALL, INTERVAL = "INTEGER", "SMALLINT", "INTERVAL"
TYPES = [INTEGER, INTEGER, TEXT, TEXT, BOOLEAN, DOUBLE, DECIMAL, DATE, TIMESTAMP, SHORT, SHORT, SMALL, INTERVAL]
_WORDS = ["''", "'a'", "'b'", "'aa'", "'ab'", "'zebra'", "'x''y'", "'10'", "'A b'", "'%_'"]
_VALUES = {
    INTEGER: ["0", "1", "2", "3", "-1", "7", "40"], TEXT: _WORDS, BOOLEAN: ["TRUE", "FALSE"],
    DOUBLE: ["CAST(0.5 AS DOUBLE PRECISION)", "CAST(-2 AS DOUBLE PRECISION)", "CAST(1e10 AS DOUBLE PRECISION)"],
    DECIMAL: ["CAST(1.25 AS NUMERIC(12, 2))", "CAST(-3 AS NUMERIC(12, 2))", "CAST(100.1 AS NUMERIC(12, 2))"],
    DATE: ["DATE '2026-01-31'", "DATE '1999-12-31'"],
    TIMESTAMP: ["TIMESTAMP '2026-01-31 10:00:00'", "TIMESTAMP '1999-12-31 23:59:59.5'"],
    SHORT: ["0", "1", "-7", "100", "30000"], SMALL: ["CAST(0 AS SMALLINT)", "CAST(5 AS SMALLINT)",
                                                          "CAST(-3 AS SMALLINT)"],
    INTERVAL: ["INTERVAL '1 day'", "INTERVAL '02:30:00'", "INTERVAL '3 days ago'"],
}  # fmt: skip
_COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


class Column(NamedTuple):
    name: str
    type: str
    required: bool
    default: str | None


class Table(NamedTuple):
    name: str
    columns: list[Column]
    key: list[str]


class Source(NamedTuple):
    """A column in sight: as it is written, and its type."""

    text: str
    type: str


class Statements:
    """Makes statements for tables that it makes first."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tables: list[Table] = []

    def schema(self) -> list[str]:
        """Three tables, of which the last stays empty for a while, with indexes on some columns."""
        made: list[str] = []
        for name in ("t", "u", "e"):
            columns = [Column("id", INTEGER, True, None)]
            for n in range(self.rng.randint(2, 5)):
                type = self.rng.choice(TYPES)
                default = self.rng.choice([None, self.rng.choice(_VALUES[type])])
                columns.append(Column(f"c{n}", type, default is not None and self.rng.random() < 0.4, default))
            columns.append(Column("n", INTEGER, False, None))
            key = ["id", "n"] if name == "u" and self.rng.random() < 0.3 else ["id"]
            table = Table(name, columns, key)
            parts = [f"{c.name} {c.type}{' NOT NULL' * (c.required or c.name in key)}"
                     f"{f' DEFAULT {c.default}' if c.default else ''}" for c in columns]  # fmt: skip
            if name == "t":
                parts.append("CHECK (n < 1000)")
            if name == "e":
                parts.append("UNIQUE (n)")
            made.append(f"CREATE TABLE {name} ({', '.join(parts)}, PRIMARY KEY ({', '.join(key)}))")
            if self.rng.random() < 0.7:
                made.append(f"CREATE INDEX {name}_i ON {name} ({self.rng.choice(columns[1:-1]).name}, n)")
            self.tables.append(table)
        return made

    def next(self) -> str:
        """A statement: half of them queries."""
        kind = self.rng.choices(["select", "insert", "update", "delete"], [12, 6, 3, 1])[0]
        return str(getattr(self, f"_{kind}")())

    # changes

    def _value(self, type: str) -> str:
        return self.rng.choice(_VALUES[type])

    def _literal(self, type: str) -> str:
        return "NULL" if self.rng.random() < 0.15 else self._value(type)

    def _row(self, columns: list[Column]) -> list[str]:
        return [str(self.rng.randint(0, 30)) if c.name in ("id", "n") and self.rng.random() < 0.9 else
                "DEFAULT" if self.rng.random() < 0.1 else self._literal(c.type) for c in columns]  # fmt: skip

    def _insert(self) -> str:
        rng, table = self.rng, self.rng.choice(self.tables[:2] * 3 + self.tables)
        columns, names = table.columns, ""
        shape = rng.choice(["whole", "whole", "short", "short", "named", "named", "long", "uneven", "select", "bad",
                            "default"])  # fmt: skip
        if shape == "default":
            return f"INSERT INTO {table.name} DEFAULT VALUES"
        if shape == "select":
            types = [column.type for column in columns[: rng.randint(1, len(columns))]]
            order = ", ".join(str(n + 1) for n in range(len(types)))  # or any row of a key might be the first
            return f"INSERT INTO {table.name} {self._plain_query(types)} ORDER BY {order} ON CONFLICT DO NOTHING"
        if shape == "short":
            columns = columns[: rng.randint(1, len(columns))]
        if shape == "named":
            columns = rng.sample(columns, rng.randint(1, len(columns)))
            names = f" ({', '.join(column.name for column in columns)})"
        rows = [self._row(columns) for _ in range(rng.choice([1, 1, 2, 5]))]
        if shape == "long":
            rows[-1].append("1")
        if shape == "uneven":
            rows.append(self._row(columns)[: rng.randint(1, len(columns))])
        if shape == "bad":
            place = rng.randrange(len(columns))
            numbers = ["1 / 0", "(SELECT 1)", "9223372036854775808"] if columns[place].type == INTEGER else []
            rows[0][place] = rng.choice(["'what'", "nowhere", "nothing(1)", *numbers])
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        conflict = rng.choice(["", "", " ON CONFLICT DO NOTHING", f" ON CONFLICT ({', '.join(table.key)}) DO NOTHING",
                               f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {self._set(table)}"])  # fmt: skip
        returning = rng.choice(["", "", " RETURNING id, n", " RETURNING *"])
        return f"INSERT INTO {table.name}{names} VALUES {values}{conflict}{returning}"

    def _set(self, table: Table) -> str:
        # PostgreSQL checks a unique column row by row, where the order of rows decides; here a statement is whole.
        free = table.columns[1:-1] if table.name == "e" else table.columns[1:]
        chosen = self.rng.sample(free, self.rng.randint(1, 2))
        sources = [Source(f"{table.name}.{column.name}", column.type) for column in table.columns]
        values = ["DEFAULT" if self.rng.random() < 0.15 else self._literal(c.type) if self.rng.random() < 0.2
                  else self._expression(c.type, sources, 1) for c in chosen]  # fmt: skip
        return ", ".join(f"{column.name} = {value}" for column, value in zip(chosen, values, strict=True))

    def _update(self) -> str:
        table = self.rng.choice(self.tables)
        sources = [Source(f"{table.name}.{column.name}", column.type) for column in table.columns]
        if self.rng.random() < 0.1:
            return f"UPDATE {table.name} SET id = id + 100 WHERE {self._condition(sources, 1)}"
        returning = self.rng.choice(["", "", " RETURNING id"])
        return f"UPDATE {table.name} SET {self._set(table)} WHERE {self._condition(sources, 2)}{returning}"

    def _delete(self) -> str:
        table = self.rng.choice(self.tables)
        sources = [Source(f"{table.name}.{column.name}", column.type) for column in table.columns]
        return f"DELETE FROM {table.name} WHERE {self._condition(sources, 1)} AND id > 5"

    # expressions

    def _column(self, type: str, sources: list[Source]) -> str | None:
        found = [source.text for source in sources if source.type == type]
        return self.rng.choice(found) if found else None

    def _expression(self, type: str, sources: list[Source], depth: int) -> str:
        rng = self.rng
        column = self._column(type, sources)
        if depth <= 0 or rng.random() < 0.4:
            return column if column is not None and rng.random() < 0.8 else self._value(type)
        one, other = (self._expression(type, sources, depth - 1) for _ in range(2))
        shapes = [f"coalesce({one}, {other}, {rng.choice(_VALUES[type])})",
                  f"CASE WHEN {self._condition(sources, depth - 1)} THEN {one} ELSE {other} END"]  # fmt: skip
        if type == INTEGER:
            shapes += [f"({one} + {other})", f"({one} - {other})", f"({one} * 2)", f"abs({one})",
                       f"length({self._expression(TEXT, sources, depth - 1)})", f"({one} % 7)"]  # fmt: skip
        if type == TEXT:
            shapes += [f"({one} || {other})", f"upper({one})", f"lower({one})", f"trim({one})",
                       f"replace({one}, 'a', 'o')"]  # fmt: skip
        shapes.append(f"nullif({one}, {other})")
        if type in (SHORT, SMALL):
            shapes += [f"({one} + {other})", f"({one} * {other})", f"(- {one})", f"({one} / 3)"]
            shapes += [f"({one} / {column or 7})", f"CAST({self._expression(DECIMAL, sources, 0)} AS {type})"]
        if type in (DOUBLE, DECIMAL):
            shapes += [f"({one} + {other})", f"({one} - {other})"] if type == DOUBLE else [f"abs({one})"]
        if type == DOUBLE:
            shapes += [f"({one} * {other})", f"({one} / 4)", f"({one} + {self._expression(SHORT, sources, 0)})"]
        if type == TIMESTAMP:
            shapes += [f"({one} + {self._expression(INTERVAL, sources, 0)})", f"date_trunc('day', {one})"]
        if type == INTERVAL:
            shapes += [f"({one} + {other})", f"({one} * 2)",
                       f"({self._expression(TIMESTAMP, sources, 0)} - {self._expression(TIMESTAMP, sources, 0)})"]
        if type == TEXT:
            shapes += [f"left({one}, 2)", f"substr({one}, {self.rng.randint(-1, 2)}, 2)", f"lpad({one}, 4, 'xy')",
                       f"CAST({self._expression(SHORT, sources, 0)} AS TEXT)", f"concat({one}, NULL, {other})",
                       f"CAST({self._expression(INTERVAL, sources, 0)} AS TEXT)",
                       f"to_char({self._expression(TIMESTAMP, sources, 0)}, 'YYYY-MM-DD')"]  # fmt: skip
        if type == BOOLEAN:
            shapes = [f"({self._condition(sources, depth - 1)})"]
        return rng.choice(shapes)

    def _condition(self, sources: list[Source], depth: int) -> str:
        rng = self.rng
        if depth > 0 and rng.random() < 0.5:
            left, right = self._condition(sources, depth - 1), self._condition(sources, depth - 1)
            return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"])
        type = rng.choice([source.type for source in sources])
        one = self._column(type, sources) or self._value(type)
        other = self._expression(type, sources, depth - 1)
        shape = rng.randrange(10)
        if shape == 0:
            return f"{one} IS {rng.choice(['', 'NOT '])}NULL"
        if shape == 1:
            return f"{one} {rng.choice(['', 'NOT '])}IN ({', '.join(rng.choice(_VALUES[type]) for _ in range(3))})"
        if shape == 2:
            return f"{one} BETWEEN {rng.choice(_VALUES[type])} AND {rng.choice(_VALUES[type])}"
        if shape == 3 and type == TEXT:
            return f"{one} {rng.choice(['', 'NOT '])}LIKE {rng.choice(['%', 'a%', '%b', '_b', 'zebra'])!r}"
        if shape == 4:
            table = rng.choice(self.tables)
            inner = [column.name for column in table.columns if column.type == type]
            if inner and depth > 0:
                found = f"SELECT s.{rng.choice(inner)} FROM {table.name} AS s WHERE s.id < {rng.randint(0, 30)}"
                return f"{one} {rng.choice(['', 'NOT '])}IN ({found})"
        if shape == 5 and depth > 0 and type == INTEGER:
            table = rng.choice(self.tables)
            return f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {table.name} AS s WHERE s.n = {one})"
        return f"{one} {rng.choice(_COMPARISONS)} {other}"

    # queries

    def partition(self) -> tuple[str, str]:
        """A query without a WHERE, and a condition for one."""
        text, sources = self._from()
        outputs = ", ".join(f"{source.text} AS o{n}" for n, source in enumerate(sources[:4]))
        return f"SELECT {outputs} FROM {text}", self._condition(sources, 2)

    def _plain_query(self, types: list[str]) -> str:
        table = self.rng.choice(self.tables)
        sources = [Source(f"{table.name}.{column.name}", column.type) for column in table.columns]
        outputs = [f"{self._column(type, sources) or self._value(type)} AS o{n}" for n, type in enumerate(types)]
        return f"SELECT {', '.join(outputs)} FROM {table.name} WHERE {self._condition(sources, 1)}"

    def _from(self) -> tuple[str, list[Source]]:
        rng = self.rng
        first = rng.choice(self.tables)
        sources = [Source(f"a.{column.name}", column.type) for column in first.columns]
        text = f"{first.name} AS a"
        if rng.random() < 0.45:
            second = rng.choice(self.tables)
            kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"])
            more = [Source(f"b.{column.name}", column.type) for column in second.columns]
            on = rng.choice(["a.id = b.id", "a.id = b.n", "a.n = b.n", "a.id = b.id AND a.n = b.n"])
            text += f" {kind} {second.name} AS b" + ("" if kind == "CROSS JOIN" else f" ON {on}")
            sources += more
        return text, sources

    def _select(self) -> str:
        rng = self.rng
        text, sources = self._from()
        where = f" WHERE {self._condition(sources, 2)}" if rng.random() < 0.7 else ""
        shape = rng.choice(["rows", "rows", "rows", "group", "total", "distinct", "set", "window", "correlated",
                            "with"])  # fmt: skip
        if shape == "window":
            return self._windowed(text, sources, where)
        if shape == "correlated":
            return self._correlated()
        if shape == "with":
            columns = ", ".join(f"{source.text} AS c{n}" for n, source in enumerate(sources[:3]))
            return (f"WITH q AS (SELECT {columns} FROM {text}"
                    f"{where}) SELECT x.*, (SELECT count(*) FROM q) AS n FROM q AS x LEFT JOIN q AS y ON x.c0 = y.c0")
        if shape in ("rows", "distinct"):
            count = rng.randint(1, 4)
            outputs = [f"{self._expression(rng.choice(TYPES), sources, 2)} AS o{n}" for n in range(count)]
            by = ", ".join(f"{n + 1}{rng.choice(['', ' DESC', ' NULLS FIRST'])}" for n in range(count))
            limit = rng.choice(["", f" LIMIT {rng.randint(0, 5)}", f" LIMIT 3 OFFSET {rng.randint(0, 3)}"])
            tail = rng.choice(["", f" ORDER BY {by}{limit}"])
            return f"SELECT {'DISTINCT ' * (shape == 'distinct')}{', '.join(outputs)} FROM {text}{where}{tail}"
        if shape == "set":
            types = [rng.choice(TYPES) for _ in range(rng.randint(1, 2))]
            verb = rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
            return f"{self._plain_query(types)} {verb} {self._plain_query(types)}"
        numbers = [source for source in sources if source.type == INTEGER]
        any_of, number = rng.choice(sources), rng.choice(numbers).text
        totals = rng.sample(["count(*)", f"count({any_of.text})", f"sum({number})", f"min({number})", f"max({number})",
                             f"count(DISTINCT {any_of.text})", f"avg({number})",
                             f"sum({number}) FILTER (WHERE {self._condition(sources, 0)})",
                             f"max({rng.choice([s for s in sources if s.type != BOOLEAN]).text})"], 3)  # fmt: skip
        outputs = [f"{total} AS o{n}" for n, total in enumerate(totals)]
        if shape == "total":
            return f"SELECT {', '.join(outputs)} FROM {text}{where}"
        by = rng.choice(sources).text
        having = rng.choice(["", " HAVING count(*) > 1", f" HAVING max({number}) > 3"])
        return f"SELECT {by} AS g, {', '.join(outputs)} FROM {text}{where} GROUP BY {by}{having}"

    def _windowed(self, text: str, sources: list[Source], where: str) -> str:
        """Window functions over an order that leaves no choice."""
        rng = self.rng
        whole = ", ".join(source.text for source in sources)
        over = f"(PARTITION BY {rng.choice(sources).text} ORDER BY {whole})" if rng.random() < 0.5 else (
            f"(ORDER BY {whole})")  # fmt: skip
        number = rng.choice([source for source in sources if source.type in (INTEGER, SHORT)]).text
        calls = rng.sample(["row_number()", "rank()", f"sum({number})", f"lag({number})", f"first_value({number})",
                            "count(*)", f"max({number})", f"avg({number})"], 2)  # fmt: skip
        outputs = ", ".join(f"{call} OVER {over} AS o{n}" for n, call in enumerate(calls))
        return f"SELECT {sources[0].text} AS k, {outputs} FROM {text}{where}"

    def _correlated(self) -> str:
        """A query within another that looks at its rows."""
        rng = self.rng
        outer, inner = rng.choice(self.tables), rng.choice(self.tables)
        column = rng.choice(inner.columns).name
        key = ", ".join(f"i.{name}" for name in inner.key)
        one = rng.choice([f"SELECT i.{column} FROM {inner.name} AS i WHERE i.id = o.n ORDER BY {key} LIMIT 1",
                          f"SELECT max(i.n) + o.id FROM {inner.name} AS i WHERE i.id < o.id",
                          f"SELECT count(*) FROM {inner.name} AS i WHERE i.n = o.n OR i.id = o.id",
                          f"SELECT i.n FROM {inner.name} AS i WHERE i.id = o.id"])  # fmt: skip
        test = rng.choice(["", f" WHERE o.n >= ALL (SELECT i.n FROM {inner.name} AS i WHERE i.id <> o.id)",
                           f" WHERE (o.id, o.n) IN (SELECT i.id, i.n FROM {inner.name} AS i)",
                           f" WHERE NOT (o.id, o.n) IN (SELECT i.n, i.id FROM {inner.name} AS i WHERE i.n > o.n)",
                           f" WHERE o.n < ANY (SELECT i.id FROM {inner.name} AS i)"])  # fmt: skip
        return f"SELECT o.id, ({one}) AS v FROM {outer.name} AS o{test}"
