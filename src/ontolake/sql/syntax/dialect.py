"""PostgreSQL's syntax as it is written: functions keep their names and arguments, intervals their text."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

DIALECT = "ontolakepostgres"
"""The name of this dialect in sqlglot."""

_SPECIAL = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM"}
"""Functions whose arguments have a syntax of their own."""
_VERBS = (TokenType.SELECT, TokenType.UPDATE, TokenType.INSERT, TokenType.DELETE)
_ENDS = (TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN)
_UNITS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}


class OntolakePostgres(Postgres):
    """sqlglot's dialect translates functions to common ones, which loses what PostgreSQL says about each."""

    INDEX_OFFSET = 0

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: each for name, each in PostgresParser.FUNCTION_PARSERS.items() if name in _SPECIAL}  # fmt: skip
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: each for name, each in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("ANY", "CASE")}  # fmt: skip

        def _parse_alias(self, this: Any, explicit: bool = False) -> Any:
            """An output may be named `select` or `update`, behind AS."""
            word, behind = self._next, self._tokens[self._index + 2 : self._index + 3]
            if self._curr is not None and self._curr.token_type == TokenType.ALIAS and word is not None and \
                    word.token_type in _VERBS and (not behind or behind[0].token_type in _ENDS):  # fmt: skip
                self._advance(2)
                return self.expression(exp.Alias(this=this, alias=exp.to_identifier(word.text.lower(), quoted=True)))
            return super()._parse_alias(this, explicit)

        def _parse_types(self, *given: Any, **options: Any) -> Any:
            """Types of system tables, such as `oid`, have arrays as others have."""
            found = super()._parse_types(*given, **options)
            while isinstance(found, exp.ObjectIdentifier) and self._match_pair(
                    TokenType.L_BRACKET, TokenType.R_BRACKET):  # fmt: skip
                item = exp.DataType(this=exp.DType.USERDEFINED, kind=exp.to_identifier(str(found.this).lower()))
                found = self.expression(exp.DataType(this=exp.DType.ARRAY, expressions=[item], nested=True))
            return found

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
            """`type 'text'` is a literal, so that what follows it, such as `::`, applies to the whole."""
            if not fallback_to_identifier and self._curr is not None and self._curr.token_type in self.TYPE_TOKENS \
                    and self._curr.token_type != TokenType.INTERVAL:  # fmt: skip
                index = self._index
                found = self._parse_types(check_func=True, allow_identifiers=False)
                if isinstance(found, exp.DataType) and self._match(TokenType.STRING, advance=False):
                    return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_string(), to=found)))
                self._retreat(index)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            index = self._index
            if not self._match(TokenType.INTERVAL) or not self._match(TokenType.STRING, advance=False):
                self._retreat(index)
                return None
            text, unit = self._parse_string(), self._parse_fields()
            return self.expression(exp.Interval(this=text, unit=None if unit is None else exp.Var(this=unit)))

        def _parse_fields(self) -> str | None:
            """The fields of an interval, such as `DAY TO SECOND(2)`."""
            words: list[str] = []
            while self._curr is not None and self._curr.text.upper() in _UNITS and len(words) < 2:
                words.append(self._curr.text.upper())
                self._advance()
                if len(words) == 1 and self._curr is not None and self._curr.text.upper() == "TO":
                    self._advance()
                else:
                    break
            if not words:
                return None
            if words[-1] == "SECOND" and self._match(TokenType.L_PAREN):
                digits = self._curr.text if self._curr is not None else ""
                self._advance()
                self._match_r_paren()
                return f"{' TO '.join(words)}({digits})"
            return " TO ".join(words)

        def _parse_limit(self, *given: Any, **options: Any) -> Any:
            """`LIMIT ALL` is LIMIT NULL: no limit."""
            found = super()._parse_limit(*given, **options)
            if isinstance(found, exp.Limit) and isinstance(found.expression, exp.Var):
                found.set("expression", exp.Null())
            return found

        def _parse_lambda(self, alias: bool = False, **options: Any) -> Any:
            """An argument; `VARIADIC array` stands for all elements of an array."""
            following = self._next
            if self._curr is not None and self._curr.text.upper() == "VARIADIC" and following is not None and \
                    following.token_type not in (TokenType.COMMA, TokenType.R_PAREN, TokenType.DOT):  # fmt: skip
                self._advance()
                inner = super()._parse_lambda(alias=alias, **options)
                return self.expression(exp.Anonymous(this="variadic", expressions=[inner]))
            return super()._parse_lambda(alias=alias, **options)

        def _parse_ordered(self, parse_method: Any = None) -> Any:
            """`ORDER BY x USING >` is DESC."""
            operators: list[str] = []

            def parse() -> Any:
                found = parse_method() if parse_method else self._parse_disjunction()
                if found is not None and self._curr is not None and self._curr.token_type == TokenType.USING:
                    self._advance()
                    operators.append(self._curr.text if self._curr is not None else "")
                    if operators[0] not in ("<", ">"):
                        self.raise_error("operator < or > expected")
                    self._advance()
                return found

            ordered = super()._parse_ordered(parse)
            if operators and isinstance(ordered, exp.Ordered):
                ordered.set("desc", operators[0] == ">")
                if operators[0] == ">" and not ordered.args.get("nulls_first"):
                    ordered.set("nulls_first", True)
            return ordered

    class Generator(PostgresGenerator):
        def interval_sql(self, expression: exp.Interval) -> str:
            unit = expression.args.get("unit")
            return f"INTERVAL {self.sql(expression, 'this')}" + (f" {unit.name}" if unit is not None else "")
