"""What the graph relies on in pylance, pinned: an upgrade that changes it is noticed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceDataset, LanceOperation, Transaction

KEYED = pa.schema([pa.field("id", pa.string(), False, metadata={"lance-schema:unenforced-primary-key": "true"}),
                   pa.field("v", pa.int64())])


def rows(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())}, schema=KEYED)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(rows(a=1, b=2), f"{tmp_path}/d", enable_stable_row_ids=True, data_storage_version="2.2")


def upsert(base: LanceDataset, table: pa.Table, mark: str = "") -> LanceDataset:
    merge: Any = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    transaction, _ = merge.execute_uncommitted(table)
    transaction.transaction_properties = {"mark": mark}
    return LanceDataset.commit(base, transaction, max_retries=0)


def test_two_merges_of_one_new_key_cannot_both_win(dataset: LanceDataset) -> None:
    other = lance.dataset(dataset.uri)

    def publish(handle: LanceDataset, value: int) -> None:
        (handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().conflict_retries(0)
         .use_index(False).execute(rows(new=value)))  # fmt: skip

    publish(dataset, 1)
    with pytest.raises(OSError, match="concurrent writers"):
        publish(other, 2)
    assert lance.dataset(dataset.uri).to_table(filter="id = 'new'").num_rows == 1


def test_a_commit_on_an_old_version_does_not_take_the_next_number(dataset: LanceDataset) -> None:
    upsert(dataset, rows(x=1))
    try:
        late = upsert(dataset, rows(y=1))
    except OSError:
        return
    assert late.version != dataset.version + 1


def test_marks_of_transactions_can_be_read_back(dataset: LanceDataset) -> None:
    moved = upsert(dataset, rows(c=3), "mine")
    transaction = moved.read_transaction(moved.version)
    assert transaction is not None
    assert transaction.transaction_properties == {"mark": "mine"}


def test_rows_tell_when_they_were_written_and_ids_stay(dataset: LanceDataset) -> None:
    moved = upsert(dataset, rows(b=5, c=3))
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {row["id"]: tuple(row.values())[1:] for row in moved.to_table(columns=columns).to_pylist()}
    assert found == {"a": (0, 1, 1), "b": (1, 1, 2), "c": (2, 2, 2)}
    moved.optimize.compact_files()
    assert {row["id"]: tuple(row.values())[1:] for row in moved.to_table(columns=columns).to_pylist()} == found


def test_deleted_rows_are_told_by_id(dataset: LanceDataset) -> None:
    transaction, _ = dataset.merge_insert("id").when_matched_delete().execute_uncommitted(pa.table({"id": ["a"]}))
    moved = LanceDataset.commit(dataset, transaction, max_retries=0)
    gone = moved.delta(begin_version=1, end_version=2).get_deleted_row_ids().read_all()
    assert gone["_rowid"].to_pylist() == [0]


def test_a_restore_brings_back_the_rows_of_a_version_on_a_branch_too(dataset: LanceDataset) -> None:
    branch = dataset.create_branch("side", (None, 1))
    assert branch.version == 1
    later = upsert(upsert(branch, rows(x=1)), rows(y=1))
    back = LanceDataset.commit(later, Transaction(later.version, LanceOperation.Restore(2)), max_retries=0)
    assert (back.version, sorted(back.to_table()["id"].to_pylist())) == (4, ["a", "b", "x"])
    assert lance.dataset(dataset.uri).version == 1
    listed: Any = dataset.branches.list()["side"]
    assert (listed["parent_branch"], listed["parent_version"]) == (None, 1)
    assert listed["branch_identifier"]


def test_a_branch_made_again_is_told_from_the_one_before(dataset: LanceDataset) -> None:
    found = []
    for _ in range(2):
        dataset.create_branch("side", (None, 1))
        listed: Any = dataset.branches.list()["side"]
        found.append(repr(listed["branch_identifier"]))
        dataset.branches.delete("side")
    assert found[0] != found[1]


def test_a_branch_that_others_were_made_from_cannot_be_deleted(dataset: LanceDataset) -> None:
    dataset.create_branch("side", (None, 1)).create_branch("side.child", ("side", 1))
    with pytest.raises((OSError, ValueError)):
        dataset.branches.delete("side")
    assert dataset.branches.list().keys() == {"side", "side.child"}


def test_without_the_mark_on_the_key_two_merges_both_win(tmp_path: Path) -> None:
    """So the mark is what the manifest stands on."""
    plain = pa.schema([pa.field("id", pa.string(), False), pa.field("v", pa.int64())])
    made = lance.write_dataset(rows(a=1).cast(plain), f"{tmp_path}/plain", enable_stable_row_ids=True)
    for handle in (lance.dataset(made.uri), lance.dataset(made.uri, version=1)):
        (handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().conflict_retries(0)
         .use_index(False).execute(rows(new=1).cast(plain)))  # fmt: skip
    assert lance.dataset(made.uri).to_table(filter="id = 'new'").num_rows == 2


def test_a_key_twice_in_one_merge_is_refused_or_put_twice(dataset: LanceDataset) -> None:
    """Either way it is for us to see to it that none is."""
    twice = pa.concat_tables([rows(n=1), rows(n=2)])
    try:
        upsert(dataset, twice)
    except (OSError, ValueError):
        return
    assert lance.dataset(dataset.uri).to_table(filter="id = 'n'").num_rows == 2


def test_columns_come_and_go_and_rows_keep_their_ids(dataset: LanceDataset) -> None:
    ids = dataset.to_table(columns=["id"], with_row_id=True)

    @lance.batch_udf(output_schema=pa.schema([pa.field("w", pa.int64())]))
    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.repeat(7, batch.num_rows)], names=["w"])

    dataset.add_columns(fill, read_columns=["id"])
    renamed: Any = {"path": "v", "name": "value"}
    dataset.alter_columns(renamed)
    assert dataset.to_table(columns=["id", "value", "w"]).to_pylist() == [
        {"id": "a", "value": 1, "w": 7}, {"id": "b", "value": 2, "w": 7}]
    dataset.drop_columns(["value"])
    assert dataset.to_table(columns=["id"], with_row_id=True) == ids
    assert lance.dataset(dataset.uri, version=1).schema.names == ["id", "v"]


def test_cleanup_takes_exactly_the_versions_that_it_is_given(dataset: LanceDataset) -> None:
    last = upsert(upsert(upsert(dataset, rows(x=1)), rows(y=1)), rows(z=1))
    last.cleanup_old_versions(versions=[2])
    assert [version["version"] for version in last.versions()] == [1, 3, 4]


def test_what_made_a_version_can_be_told_but_for_two_operations(dataset: LanceDataset) -> None:
    """Reserved fragments have no name, and a compaction that took an index along cannot be shown at all."""
    grown = upsert(upsert(dataset, rows(x=1)), rows(y=1))
    grown.create_scalar_index("id", "BTREE")
    indexed = grown.version
    grown.delete("id = 'a'")
    grown.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
    reserved, rewritten = range(indexed + 2, grown.version + 1)
    assert type(grown.read_transaction(reserved).operation).__name__ == "BaseOperation"  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="RewrittenIndex"):
        grown.read_transaction(rewritten)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_a_version_that_cannot_be_read_is_an_os_error(dataset: LanceDataset, tmp_path: Path, damage: Any) -> None:
    upsert(upsert(dataset, rows(x=1)), rows(y=1))
    damage(tmp_path / "d" / "_versions" / f"{2**64 - 1 - 2:020d}.manifest")
    with pytest.raises(OSError, match="manifest"):
        lance.dataset(dataset.uri).read_transaction(2)


@pytest.mark.parametrize("hint", [b"", b"\0\0", b"{", b'{"version":1}', b'{"version":99}', None])
def test_the_hint_of_the_latest_version_may_be_lost_or_wrong(dataset: LanceDataset, hint: bytes | None) -> None:
    file = Path(dataset.uri) / "_versions" / "latest_version_hint.json"
    lance.write_dataset(rows(c=3), dataset.uri, mode="append")
    file.unlink() if hint is None else file.write_bytes(hint)
    assert (lance.dataset(dataset.uri).version, lance.dataset(dataset.uri).count_rows()) == (2, 3)
    assert lance.write_dataset(rows(d=4), dataset.uri, mode="append").version == 3


def test_where_branches_write_and_what_their_handles_say(dataset: LanceDataset) -> None:
    made = dataset.create_branch("try", (None, 1))
    assert made.uri == f"{dataset.uri}/tree/try"
    found = lance.dataset(dataset.uri).checkout_version(("try", None))
    assert found.uri == dataset.uri  # so that places of files cannot be told from it
    moved = upsert(found, rows(a=5))
    assert moved.uri == f"{dataset.uri}/tree/try"
    (changed,) = moved.read_transaction(moved.version).operation.updated_fragments
    assert (Path(moved.uri) / str(changed.deletion_file.path(changed.id))).is_file()


def test_files_of_a_compaction_take_over_after_others_have_appended(dataset: LanceDataset) -> None:
    from lance.optimize import Compaction

    for number in range(5):
        lance.write_dataset(rows(**{f"k{number}": number}), dataset.uri, mode="append")
    seen = lance.dataset(dataset.uri)
    rewrites = [task.execute(seen) for task in Compaction.plan(seen, {"target_rows_per_fragment": 100}).tasks]
    lance.write_dataset(rows(late=1), dataset.uri, mode="append")
    latest = lance.dataset(dataset.uri)
    Compaction.commit(latest, rewrites)
    assert (latest.count_rows(), len(latest.get_fragments())) == (8, 2)
    assert latest.to_table(filter="_row_created_at_version = 1").num_rows == 2
