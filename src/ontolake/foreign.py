"""Files that are not stores: what they are, by their first bytes and their names, and what loads them."""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath

from ontolake.errors import Invalid

_HEAD = 4096
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"Obj\x01", "avro"), (b"ORC", "orc"), (b"\x1f\x8b", "gz"),
          (b"PK\x03\x04", "zip"), (b"\xd0\xcf\x11\xe0", "xls"), (b"SQLite format 3\x00", "sqlite"),
          (b"ontolake pages\x00", "pages"))  # fmt: skip
_NAMES = {"csv": "csv", "tsv": "csv", "json": "json", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet",
          "pq": "parquet", "xlsx": "xlsx", "xls": "xls", "gz": "gz", "zip": "zip", "feather": "arrow", "arrow": "arrow",
          "avro": "avro", "orc": "orc", "txt": "text", "md": "text"}  # fmt: skip
_CALLED = {"csv": "a CSV file", "json": "a JSON file", "jsonl": "a file of JSON lines", "parquet": "a Parquet file",
           "arrow": "an Arrow file", "avro": "an Avro file", "orc": "an ORC file", "gz": "a gzip file",
           "zip": "a zip file", "xlsx": "an Excel workbook", "xls": "an Excel workbook", "text": "a text file",
           "sqlite": "a SQLite file", "pages": "a page file", "": "a file of another program"}  # fmt: skip
_PIPELINE = "a pipeline loads it into a store: {how}, then onto pipeline run"
_TABLE = "; in Python session.ensure_arrow(Type, {read})"
_HINTS = {
    "csv": _PIPELINE.format(how="pipeline.csv(…)") + _TABLE.format(read="pyarrow.csv.read_csv(…)"),
    "json": _PIPELINE.format(how="pipeline.json(…, multiLine=True)"),
    "jsonl": "onto import takes what onto export has written; " + _PIPELINE.format(how="pipeline.json(…)"),
    "parquet": _PIPELINE.format(how="pipeline.parquet(…)") + _TABLE.format(read="pyarrow.parquet.read_table(…)"),
    "arrow": "in Python session.ensure_arrow(Type, table) takes it, read by pyarrow",
    "avro": _PIPELINE.format(how="pipeline.format(…, 'avro', …)"),
    "orc": _PIPELINE.format(how="pipeline.format(…, 'orc', …)"),
    "gz": "unpack it; a pipeline reads CSV and lines of JSON as they are in it",
    "zip": "unpack it",
    "sqlite": "end its name in .db, or write sqlite:///path",
    "pages": "file:///… opens a page file, if its name ends in .db",
    "xlsx": "save its sheets as CSV; " + _PIPELINE.format(how="pipeline.csv(…)"),
    "xls": "save its sheets as CSV; " + _PIPELINE.format(how="pipeline.csv(…)"),
}


def kind_of(path: str | Path) -> str | None:
    """What a file is: `csv`, `parquet`, …, `text`, and the empty text for what nobody knows; None if it is no file."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    named = _NAMES.get(PurePosixPath(str(path).lower()).suffix[1:], "")
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if found is not None:
        return named if found == "zip" and named == "xlsx" else found
    return _of_text(head, named) if head else named


def _of_text(head: bytes, named: str) -> str:
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # else a character was cut in two
            return named if named in ("csv", "text") else ""
        text = head[: error.start].decode("utf-8-sig")
    if "\x00" in text:
        return ""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].lstrip()[0] in "{[":
        whole = lines[0].lstrip()[0] == "{" and lines[0].rstrip().endswith("}")
        return "jsonl" if whole and (len(lines) > 1 or named == "jsonl") else "json"
    if named in ("csv", "text"):
        return named
    return "csv" if _has_columns(lines) else "text"


def _has_columns(lines: list[str]) -> bool:
    """Whether the first lines have the same number of columns, and more than one."""
    for separator in ",;\t|":
        counts = {len(row) for row in csv.reader(lines[:4], delimiter=separator)}
        if len(lines) > 1 and len(counts) == 1 and counts.pop() > 1:
            return True
    return False


def refusal(path: str | Path, name: str, wanted: str = "a store") -> Invalid | None:
    """What to raise if a file that is there, called `name` in messages, was given for what is `wanted`; None if it is
    no file."""
    told = described(path)
    return None if told is None else Invalid(f"{name} is {told[0]}, not {wanted}", hint=told[1])


def described(path: str | Path) -> tuple[str, str] | None:
    """What a file is, and what to do with it; None if it is no file."""
    kind = kind_of(path)
    if kind is None:
        return None
    inner = _NAMES.get(PurePosixPath(str(path).lower()).with_suffix("").suffix[1:]) if kind == "gz" else None
    what = f"{_CALLED[inner]}, packed by gzip" if inner else _CALLED[kind]
    return what, _HINTS.get(kind, "choose another path")


def among(key: str) -> tuple[str, str] | None:
    """What an object in a place of others is, by its name, and what loads it; None if the name does not tell."""
    kind = _NAMES.get(PurePosixPath(key.lower()).suffix[1:])
    return None if kind is None else (_CALLED[kind], _HINTS.get(kind, "choose an empty place"))
