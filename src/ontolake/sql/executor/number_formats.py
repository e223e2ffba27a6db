"""Numbers in the way of `to_char`, and back by `to_number`: PostgreSQL's templates, mark by mark."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from ontolake.sql.errors import SqlError
from ontolake.sql.executor.formats import ordinal

_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|\\"|EEEE|FM|MI|PL|PR|RN|SG|SP|TH|[,.09BCDGLSV]|.', re.IGNORECASE | re.DOTALL)
_WORDS = {"EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", *",.09BCDGLSV"}


class _Template:
    """What a template asks for."""

    def __init__(self, pattern: str) -> None:
        self.marks = _MARKS.findall(pattern)
        self.before = self.behind = self.shift = 0
        """Places before and behind the point, and behind V."""
        self.first_zero: int | None = None
        """The place of the first 0 before the point."""
        self.last_zero = 0
        self.fill, self.point, self.bracket, self.scientific, self.roman = True, False, False, False, False
        self.own_sign = False
        """Whether MI or SG shows the sign."""
        self.sign_before: int | None = None
        """How many places stand before S."""
        moved = False
        for mark in self.marks:
            word = mark.upper()
            if word in "09" and moved:
                self.shift += 1
            elif word in "09":
                if word == "0":
                    if self.first_zero is None and not self.point:
                        self.first_zero = self.before
                    self.last_zero = self.before + self.behind + 1
                self.before, self.behind = self.before + (not self.point), self.behind + self.point
            elif word in (".", "D"):
                if self.point:
                    raise SqlError("multiple decimal points", sqlstate="42601")
                self.point = True
            elif word == "V":
                moved = True
            elif word == "S":
                self.sign_before = self.before
            self.fill = self.fill and word != "FM"
            self.bracket = self.bracket or word == "PR"
            self.scientific = self.scientific or word == "EEEE"
            self.roman = self.roman or word == "RN"
            self.own_sign = self.own_sign or word in ("MI", "SG")


def number_text(text: str, pattern: str) -> str:
    """A number in the way of `to_char`."""
    template, value = _Template(pattern), Decimal(text)
    if template.roman:
        shown = _roman(int(value.to_integral_value(ROUND_HALF_UP))) if value.is_finite() else "#" * 15
        return shown.rjust(15 if template.fill else 0)
    if template.scientific:
        shown = _scientific(value, template.behind) if value.is_finite() else "#." + "#" * (template.behind + 4)
        return shown if value < 0 or not template.fill else f" {shown}"
    with localcontext() as context:
        context.prec = 1000
        if template.shift:
            value = value.scaleb(template.shift)
        room = template.before + template.shift
        rounded = abs(value).quantize(Decimal(1).scaleb(-template.behind), ROUND_HALF_UP) if value.is_finite() else None
    whole, _, fraction = ("" if rounded is None else f"{rounded:f}").partition(".")
    if rounded is None or len(whole) > room:
        if whole == "0" and room == 0:
            whole = ""
        else:
            whole, fraction = "#" * room, "#" * template.behind
    if whole == "0" and template.behind and template.first_zero is None and room:
        whole = ""  # which takes a blank instead
    digits = whole + ("." + fraction if template.behind else "")
    return _Writer(template, digits, room - len(whole), value < 0).written()


def _scientific(value: Decimal, places: int) -> str:
    """A number with one digit before its point, and an exponent of two digits at least."""
    unit = Decimal(1).scaleb(-places)
    exponent = value.adjusted() if value else 0
    with localcontext() as context:
        context.prec = 200_000
        figures = value.scaleb(-exponent).quantize(unit, ROUND_HALF_UP)
        if abs(figures) >= 10:
            exponent, figures = exponent + 1, (figures / 10).quantize(unit, ROUND_HALF_UP)
    return f"{figures:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


class _Writer:
    """Puts digits in the places of a template."""

    def __init__(self, template: _Template, digits: str, blanks: int, negative: bool) -> None:
        self._template, self._digits, self._blanks, self._negative = template, digits, blanks, negative
        self._place = self._next = 0
        self._inside, self._last = False, len(digits)
        """Whether a digit was written, and the end of the digits that count."""
        self._out: list[str] = []
        if not template.fill and template.point and "#" not in digits:
            needed = max(template.last_zero - blanks, 0)
            needed += 1 if template.last_zero > template.before else 0
            self._last = max(len(digits.rstrip("0")), min(needed, len(digits)))
        self._sign_at_end = template.sign_before is not None and template.sign_before == template.before
        self._signed = template.own_sign or (
            not template.fill and not negative and template.sign_before is None)  # fmt: skip
        self._bracket = template.bracket and (template.fill or negative)

    def written(self) -> str:
        template = self._template
        for mark in template.marks:
            word = mark.upper()
            if word in ("0", "9", ".", "D"):
                self._put(word)
            elif word in (",", "G"):
                if self._inside:
                    self._out.append(",")
                elif template.fill:
                    self._out.append(" ")
            elif word == "L":
                self._out.append(" ")
            elif word == "TH":
                if not self._negative and "#" not in self._digits and not template.point:
                    ending = ordinal(int(self._digits or 0))
                    self._out.append(ending if mark.islower() else ending.upper())
            elif word == "MI":
                self._out.append("-" if self._negative else " " if template.fill else "")
            elif word == "PL":
                self._out.append("+" if not self._negative else " " if template.fill else "")
            elif word == "SG":
                self._out.append("-" if self._negative else "+")
            elif word in _WORDS:
                continue
            elif mark.startswith('"'):
                inner = mark[1:-1] if mark.endswith('"') and len(mark) > 1 else mark[1:]
                self._out.append(re.sub(r"\\(.)", r"\1", inner))
            else:
                self._out.append(mark[-1])
        if self._bracket and self._signed:
            self._out.append(">" if self._negative else " ")
        elif self._sign_at_end:
            self._out.append("-" if self._negative else "+")
        return "".join(self._out)

    def _put(self, word: str) -> None:
        template = self._template
        zero = template.first_zero is not None and template.first_zero <= self._place
        blank = self._place < self._blanks and not zero
        if not self._signed and not blank:
            self._sign()
        if word in (".", "D"):
            if self._digits[self._next : self._next + 1] == ".":
                if not self._inside and not template.fill and self._last == self._next + 1:
                    self._out.append("0")
                self._out.append(".")
                self._next += 1
            return
        if blank:
            self._out.append(" " if template.fill else "")
        elif self._place < self._blanks:
            self._out.append("0")
            self._inside = True
        elif self._next < self._last:
            self._out.append(self._digits[self._next])
            self._inside, self._next = True, self._next + 1
        else:
            self._next += 1
        self._place += 1

    def _sign(self) -> None:
        self._signed = True
        if self._template.sign_before is not None:
            if not self._sign_at_end:
                self._out.append("-" if self._negative else "+")
        elif self._bracket:
            self._out.append("<" if self._negative else " ")
        elif self._negative:
            self._out.append("-")
        elif self._template.fill:
            self._out.append(" ")


def _roman(number: int) -> str:
    if not 0 < number < 4000:
        return "#" * 15
    found = ""
    for value, mark in ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),  # noqa: E501
                        (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):  # fmt: skip
        while number >= value:
            found, number = found + mark, number - value
    return found


def read_number(text: str, pattern: str) -> Decimal:
    """`to_number`: the number that a text shows."""
    digits = "".join(each for each in text if each.isdigit() or each in ".-")
    digits = digits.replace("-", "")
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise SqlError(f'invalid input syntax for type numeric: "{text}"', sqlstate="22P02") from None
    shift = len(re.findall("[09]", pattern.upper().partition("V")[2]))
    return (-value if "-" in text or text.strip().startswith("<") else value).scaleb(-shift)
