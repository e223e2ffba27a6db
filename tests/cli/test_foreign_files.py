"""Files of other programs given for a store: they are called what they are, and left alone."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from marking import slow_after

from ontolake.documents import open_space
from ontolake.engine import connect
from ontolake.errors import OntolakeError
from ontolake.ontology import Session
from ontolake.storage import open_storage

CSV = "iata,name\nLH,Lufthansa\nBA,British Airways\n"


def workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")


MAKE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "airlines.csv": (lambda path: path.write_text(CSV), "a CSV file", "pipeline.csv"),
    "airlines": (lambda path: path.write_text(CSV.replace(",", ";")), "a CSV file", "pipeline.csv"),
    "latin.csv": (lambda path: path.write_bytes(f"{CSV}Ö,Österreich\n".encode("cp1252")), "a CSV file", "pipeline"),
    "airlines.db": (lambda path: path.write_text(CSV), "a CSV file", "pipeline.csv"),
    "rows.jsonl": (lambda path: path.write_text('{"a": 1}\n{"a": 2}\n'), "a file of JSON lines", "pipeline.json"),
    "rows.json": (lambda path: path.write_text(json.dumps([{"a": 1}], indent=1)), "a JSON file", "multiLine"),
    "rows.parquet": (lambda path: pq.write_table(pa.table({"a": [1]}), path), "a Parquet file", "pipeline.parquet"),
    "rows.feather": (lambda path: feather.write_feather(pa.table({"a": [1]}), path), "an Arrow file", "ensure_arrow"),
    "book.xlsx": (workbook, "an Excel workbook", "as CSV"),
    "airlines.csv.gz": (lambda path: path.write_bytes(gzip.compress(CSV.encode())), "a CSV file, packed", "unpack"),
    "notes.txt": (lambda path: path.write_text("Dear diary\n"), "a text file", "another path"),
    "cat.jpg": (lambda path: path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(256)), "another program", "another path"),
}  # fmt: skip


COMMANDS = (("info",), ("log",), ("sql",), ("storage", "info"), ("query", "entities", "T", "--db"), ("graph", "log"))


@pytest.mark.parametrize("name", slow_after(2, MAKE))
def test_a_file_of_another_program_is_called_what_it_is(onto, tmp_path: Path, name: str) -> None:
    make, what, hint = MAKE[name]
    path = tmp_path / name
    make(path)
    before = path.read_bytes()
    for command in COMMANDS if not name.endswith(".db") else COMMANDS[:-1]:
        done = onto(*command, str(path))
        assert (done.code in (2, 5), done.out) == (True, ""), command
        assert what in done.err, command
        assert hint in done.err, command
    for opened in (lambda: Session(str(path)), lambda: connect(str(path)), lambda: open_space(str(path), "space"),
                   lambda: open_storage(f"file://{path}")):  # fmt: skip
        with pytest.raises(OntolakeError) as caught:
            opened()
        assert what in str(caught.value) or name.endswith(".db")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", [name for name in MAKE if "json" not in name])
def test_importing_it_says_what_it_is_before_a_store_is_looked_for(onto, tmp_path: Path, name: str) -> None:
    make, what, hint = MAKE[name]
    make(tmp_path / name)
    done = onto("import", str(tmp_path / name), "--db", str(tmp_path / "none.db"))
    assert (done.code, done.out) == (2, "")
    assert what in done.err
    assert "not lines of JSON" in done.err
    assert hint in done.err


def test_a_folder_of_such_files_is_told(onto, tmp_path: Path) -> None:
    folder = tmp_path / "delivery"
    folder.mkdir()
    (folder / "airlines.csv").write_text(CSV)
    for where in (str(folder), f"{folder}/", f"file://{folder}"):
        done = onto("info", where)
        assert done.code == 2
        assert "holds other files, such as 'airlines.csv', a CSV file" in done.err
        assert "pipeline.csv" in done.err
    done = onto("import", str(folder), "--db", str(tmp_path / "none.db"))
    assert done.code == 2
    assert "is a folder, with files such as 'airlines.csv', a CSV file, not lines of JSON" in done.err
    assert f"there is no graph at {folder}/" in onto("graph", "log", str(folder)).err


def test_documents_take_a_folder_without_a_slash(onto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_space("data", "people").close()
    assert (tmp_path / "data" / "people.sqlite").is_file()
    assert onto("docs", "put", "data", "people", "ann", '{"age": 3}').code == 0
    assert "age" in onto("docs", "get", "data", "people", "ann").out
