"""Stores to look at, and two ways to run `onto`: in this process, and as the program that users start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from marking import slow_after

from ontolake.cli import main
from ontolake.model import type_info
from ontolake.model.imports import load
from ontolake.ontology import Session
from ontolake.storage import PageId, WalRecord, open_storage

PROGRAM = Path(sys.executable).parent / "onto"


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that `--json` puts on standard error."""
        return json.loads(self.err)["error"]


Onto = Callable[..., Done]


@pytest.fixture
def onto(capfd: pytest.CaptureFixture[str]) -> Onto:
    """Runs a command in this process."""

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def program() -> Onto:
    """Runs the installed program."""

    def run(*arguments: str, **variables: str) -> Done:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=200, check=False,
                              env={**os.environ, **variables})
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def image(text: str, page_size: int = 4096) -> bytes:
    """A page full of a text, so that it can be found among the bytes of a store."""
    return (text.encode() * page_size)[:page_size]


@pytest.fixture(params=slow_after(1, ["file", "directory"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with four records. main: page 1 twice, a note; the branch try, which left after LSN 1: page 2."""
    where = f"file://{tmp_path}/pages" + (".db" if request.param == "file" else "")
    with open_storage(where) as store:
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(image("draft "), PageId(1))])
        store.append_wal(token, [WalRecord(image("final "), PageId(1)), WalRecord(b"a note")])
        store.create_branch("try", store.pitr_floor() + 1)  # type: ignore[arg-type]
        store.append_wal(token, [WalRecord(image("other "), PageId(2))], branch="try")
        store.release_fence(token)
    return where


@pytest.fixture
def nothing(tmp_path: Path) -> str:
    """A place where no store is."""
    return f"file://{tmp_path}/missing.db"


SHOP = '''
import enum
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from ontolake.model import Entity, Field, Relation


class Tier(enum.Enum):
    GOLD = "gold"
    SILVER = "silver"


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[Tier | None] = Field(default=None, index=True)
    score: Field[float] = Field(default=0.0)
    active: Field[bool] = Field(default=True)
    born: Field[date | None] = Field(default=None)
    tags: Field[list[str]] = Field(default_factory=list)
    extra: Field[Any] = Field(default=None)


class Order(Entity):
    id: Field[int] = Field(primary_key=True)
    total: Field[Decimal]
    at: Field[datetime]
    key: Field[bytes] = Field(default=b"")
    note: Field[str] = Field(default="", name="the note")


class Placed(Relation[Customer, Order]):
    count: Field[int] = Field(default=1)


class Rated(Relation[Customer, Order]):
    year: Field[str] = Field(instance_key=True)
    stars: Field[int] = Field(default=0)
'''


class Shop(NamedTuple):
    """A typed store with two commits, the options that name it, and the module of its types."""

    url: str
    engine: str
    models: str
    types: Any

    @property
    def at(self) -> tuple[str, str]:
        return "--storage-uri", self.url

    def session(self) -> Session:
        types = self.types
        return Session(self.url, entity_types=[types.Customer, types.Order], relation_types=[types.Placed, types.Rated])


def load_types(path: Path) -> Any:
    """The module of a file of types."""
    return sys.modules[type_info(load(str(path))[0]).cls.__module__]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A file of types."""
    path = tmp_path / "shop_types.py"
    path.write_text(SHOP)
    return path


PLACES = {"native": "{}/shop.db", "page file": "file://{}/pages.db", "directory": "file://{}/lake"}
OpenShop = Callable[[str, Path], Shop]


@pytest.fixture(scope="session")
def shop_in(tmp_path_factory: pytest.TempPathFactory) -> OpenShop:
    """Puts a shop of a kind next to its types: a copy of one that is filled once for all tests."""
    def opened(kind: str, folder: Path) -> Shop:
        place, engine = kind.rsplit(" ", 1)
        models = folder / "shop_types.py"
        models.write_text(SHOP)
        return Shop(PLACES[place].format(folder), engine, str(models), load_types(models))

    @cache
    def filled(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("shop")
        fill(opened(kind, folder))
        return folder

    def shop_in(kind: str, folder: Path) -> Shop:
        shutil.copytree(filled(kind), folder, dirs_exist_ok=True)
        return opened(kind, folder)

    return shop_in


@pytest.fixture(params=slow_after(1, ["native v2", "directory v2", "native v1", "page file v2"]))
def shop(request: pytest.FixtureRequest, shop_in: OpenShop, tmp_path: Path) -> Shop:
    """A small shop. Commit 1: Ada, Bob and an order; commit 2: Bob has turned gold, and rated an order."""
    return shop_in(str(request.param), tmp_path)


@pytest.fixture
def native(shop_in: OpenShop, tmp_path: Path) -> Shop:
    """The same, in a native file with the latest engine only."""
    return shop_in("native v2", tmp_path)


def fill(shop: Shop) -> None:
    assert main(["init", "--storage-uri", shop.url, "--engine-version", shop.engine]) == 0
    t = shop.types
    with shop.session() as session:
        session.ensure([
            t.Customer(id="c1", name="Ada", tier=t.Tier.GOLD, tags=["vip", "new"], extra={"city": "Rome", "n": [1, 2]}),
            t.Customer(id="c2", name="Bob\tthe second", score=2.5, active=False, born=date(2000, 1, 2)),
            t.Order(id=1, total=Decimal("10.50"), at=datetime(2024, 1, 1, 12), key=b"\x00\xff", note="first"),
            t.Placed(left_key="c1", right_key=1, count=3),
        ])  # fmt: skip
        assert session.commit(metadata={"author": "test"}) == 1
        session.ensure(t.Customer(id="c2", name="Bob", tier=t.Tier.GOLD, score=2.5, active=False,
                                  born=date(2000, 1, 2)))  # fmt: skip
        session.ensure(t.Rated(left_key="c2", right_key=1, year="2024", stars=5))
        assert session.commit() == 2
