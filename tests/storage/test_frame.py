"""Frames come back as they were written, and no flipped bit goes unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption
from ontolake.storage import PageId, WalRecord, frame
from ontolake.storage.frame import LogCommit

pages = st.none() | st.integers(0, 2**64 - 1).map(PageId)
records = st.lists(st.builds(WalRecord, st.binary(max_size=40), pages), min_size=1, max_size=5)
commits = st.lists(st.tuples(st.integers(0, 2**63), records, st.none() | st.text(min_size=1)), min_size=1, max_size=4)


def written(groups: list[tuple[int, list[WalRecord], str | None]]) -> tuple[bytes, list[LogCommit]]:
    made = [LogCommit(branch, kept, [xxh3_64_intdigest(record.bytes) for record in kept], request, 7 if request else 0)
            for branch, kept, request in groups]
    body, count, meta = frame.encode_commits(made)
    header = frame.Header(frame.DATA, log_id=1, ordinal=2, epoch=3, nonce=b"n" * 16, first_lsn=4, records=count,
                          meta_length=meta, body_length=len(body), time_us=5, prev=6)
    head, _ = frame.encode(header, body)
    return head + body, made


@given(commits)
def test_commits_come_back_with_the_place_of_every_payload(
    groups: list[tuple[int, list[WalRecord], str | None]],
) -> None:
    data, made = written(groups)
    header, body = frame.decode(data, name="frame")
    found = list(frame.decode_commits(header, body))
    assert [(c.branch, list(c.records), c.request_id, c.digest, list(c.sums)) for c in found] == [
        (c.branch, list(c.records), c.request_id, c.digest, list(c.sums)) for c in made]
    offset = frame.first_payload(header)
    for commit in found:
        for record in commit.records:
            assert data[offset : offset + len(record.bytes)] == record.bytes
            offset += len(record.bytes)
    assert offset == len(data)


@given(commits, st.data())
def test_a_flipped_bit_is_noticed(groups: list[tuple[int, list[WalRecord], str | None]], data: st.DataObject) -> None:
    stored = bytearray(written(groups)[0])
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Corruption, match="frame 9"):
        frame.decode(bytes(stored), name="frame 9")


@given(st.integers(0, 200))
def test_a_frame_that_is_cut_short_is_noticed(length: int) -> None:
    data, _ = written([(0, [WalRecord(b"x" * 150)], None)])
    with pytest.raises(Corruption):
        frame.decode(data[:length], name="frame")
