"""SQLAlchemy on SQL tables in this process: what the dialect suite does not ask."""

from __future__ import annotations

import datetime
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg

from ontolake.sql import open_database


class Base(orm.DeclarativeBase): ...


class Customer(Base):
    __tablename__ = "Customers"  # a name that has to be quoted
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    token: orm.Mapped[uuid.UUID] = orm.mapped_column(default=uuid.uuid4)
    orders: orm.Mapped[list[Order]] = orm.relationship(back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    __tablename__ = "orders"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    customer_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("Customers.id"))
    total: orm.Mapped[Decimal] = orm.mapped_column(sa.Numeric(10, 2))
    taken: orm.Mapped[datetime.timedelta | None]
    at: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    details: orm.Mapped[dict[str, Any] | None] = orm.mapped_column(pg.JSONB)
    tags: orm.Mapped[list[str]] = orm.mapped_column(pg.ARRAY(sa.String), default=list)
    state: orm.Mapped[str] = orm.mapped_column(sa.Enum("new", "paid", name="state"), default="new")
    customer: orm.Mapped[Customer] = orm.relationship(back_populates="orders")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/shop.db"


def test_the_orm_writes_and_reads(path: str) -> None:
    engine = sa.create_engine(f"ontolake:///{path}")
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # what is there stays
    with orm.Session(engine) as session:
        ada = Customer(name="Ada", orders=[
            Order(total=Decimal("9.90"), tags=["a", "b"], details={"note": "?", "n": [1, None]}),
            Order(total=Decimal(1), state="paid", taken=datetime.timedelta(hours=30))])  # fmt: skip
        session.add_all([ada, Customer(name="Bo")])
        session.commit()
        assert [order.id for order in ada.orders] == [1, 2]
        assert ada.orders[0].at.tzinfo is not None
        wanted = sa.select(Order).where(Order.details.has_key("note"), sa.literal("b") == sa.any_(Order.tags))
        found = session.scalars(wanted).one()
        assert (found.total, found.details) == (Decimal("9.90"), {"note": "?", "n": [1, None]})
        assert found.customer.name == "Ada"
        assert isinstance(found.customer.token, uuid.UUID)
        assert session.scalar(sa.select(sa.func.sum(Order.total)).join(Customer).where(Customer.name == "Ada")) == \
            Decimal("10.90")
        session.delete(ada)
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Order)) == 0
    Base.metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []
    assert sa.inspect(engine).get_enums() == []
    engine.dispose()


def test_connections_of_one_thread_and_of_many(path: str) -> None:
    engine = sa.create_engine(f"ontolake:///{path}", pool_size=4)
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True, autoincrement=False))
    table.metadata.create_all(engine)
    with engine.connect() as one, engine.connect() as two:
        one.execute(table.insert().values(id=1))
        assert two.scalar(sa.select(sa.func.count()).select_from(table)) == 0
        two.rollback()
        one.commit()
        assert two.scalar(sa.select(sa.func.count()).select_from(table)) == 1

    def write(id: int) -> None:
        with engine.begin() as connection:
            connection.execute(table.insert().values(id=id))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(2, 42)))
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 41
        upsert = pg.insert(table).values(id=1).on_conflict_do_nothing()
        assert connection.execute(upsert).rowcount == 0
        with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(table.insert().values(id=1))
        connection.execute(table.insert().values(id=99))
        connection.commit()
    engine.dispose()


def test_urls(path: str, tmp_path: Path) -> None:
    with open_database(path) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        db.branches.create("try")
        with open_database(path, branch="try") as branch:
            branch.execute("INSERT INTO t VALUES (1)")
    counts = []
    for url in (f"ontolake:///{path}", f"ontolake:///{path}?branch=try", f"ontolake://?url={path}&branch=try&cache=0"):
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            counts.append(connection.scalar(sa.text("SELECT count(*) FROM t")))
        engine.dispose()
    assert counts == [0, 1, 1]
    engine = sa.create_engine(f"ontolake:///{path}?readonly=true")
    with pytest.raises(sa.exc.DBAPIError), engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
    engine.dispose()
    pages = sa.create_engine(f"ontolake://?url=file://{tmp_path}/pages.db")  # where there can be one writer
    with pages.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (id INT PRIMARY KEY)"))
    with pages.begin() as one, pages.begin() as two:
        one.execute(sa.text("INSERT INTO t VALUES (1)"))
        two.execute(sa.text("INSERT INTO t VALUES (2)"))
    with pages.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 2
    pages.dispose()
    for wrong in ("ontolake://host/shop.db", "ontolake://ada@/shop.db", "ontolake:///a.db?url=b.db"):
        with pytest.raises(sa.exc.ArgumentError):
            sa.create_engine(wrong)
    with pytest.raises(sa.exc.InterfaceError, match="brunch"):
        sa.create_engine(f"ontolake:///{path}?brunch=try").connect()


def test_tables_in_memory_are_those_of_the_engine() -> None:
    engine = sa.create_engine("ontolake://")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (id INT)"))
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: sa.inspect(engine).get_table_names()).result() == ["t"]
    engine.dispose()


def test_what_is_reflected_creates_the_same_again(path: str, tmp_path: Path) -> None:
    with open_database(path) as db:
        db.execute("""
            CREATE TYPE mood AS ENUM ('sad', 'glad');
            CREATE TABLE people (
                id INT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, number SERIAL, mood mood DEFAULT 'glad',
                name VARCHAR(20) NOT NULL UNIQUE, born TIMESTAMP(3), paid NUMERIC(8, 2) CHECK (paid > 0),
                twice INT GENERATED ALWAYS AS (number * 2) STORED, codes INT[]);
            CREATE TABLE visits (person INT REFERENCES people ON DELETE CASCADE, day DATE, PRIMARY KEY (person, day));
            CREATE INDEX young ON people (born DESC) WHERE paid > 10;
            CREATE INDEX ON people (lower(name)) INCLUDE (born);
            COMMENT ON TABLE people IS 'who comes'; COMMENT ON COLUMN people.born IS 'when';
        """)

    def reflected(url: str) -> dict[str, Any]:
        engine = sa.create_engine(url)
        inspector = sa.inspect(engine)
        found: dict[str, Any] = {}
        for name in inspector.get_table_names():
            found[name] = {
                "columns": [{**each, "type": repr(each["type"])} for each in inspector.get_columns(name)],
                "key": inspector.get_pk_constraint(name), "foreign": inspector.get_foreign_keys(name),
                "indexes": inspector.get_indexes(name), "unique": inspector.get_unique_constraints(name),
                "checks": inspector.get_check_constraints(name), "comment": inspector.get_table_comment(name),
            }  # fmt: skip
        engine.dispose()
        return found

    metadata, engine = sa.MetaData(), sa.create_engine(f"ontolake:///{path}")
    metadata.reflect(engine)
    copy = sa.create_engine(f"ontolake:///{tmp_path}/copy.db")
    with copy.begin() as connection:
        connection.execute(sa.text("CREATE SEQUENCE people_number_seq AS INT"))  # which is not part of a table
        pg.ENUM("sad", "glad", name="mood").create(connection)
        metadata.create_all(connection)
    assert reflected(f"ontolake:///{tmp_path}/copy.db") == reflected(f"ontolake:///{path}")
    engine.dispose()
    copy.dispose()
