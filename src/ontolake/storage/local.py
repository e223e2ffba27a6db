"""`LocalFileStorage`: a whole database in one file, safe between processes, durable before every answer.

The file is a header, two slots of which one points to the newest root, and then a log that only grows at its
end. Writers hold an advisory lock for the length of one write. Space that is no longer needed is given
back to the file system by punching holes, so nothing ever moves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from ontolake import faults
from ontolake.errors import (
    Corruption,
    DurabilityUnconfirmed,
    Invalid,
    NotFound,
    PreconditionFailed,
    StorageError,
    Transient,
)
from ontolake.folders import obstacle
from ontolake.storage.backend import LogStorage
from ontolake.storage.envelope import BLOB, FRAME, HEAD_SIZE, MARK_SIZE, UNMARKED, Envelope, Envelopes
from ontolake.storage.filelock import FileLock
from ontolake.storage.holes import punch_hole
from ontolake.storage.holes import wipe as wipe_range
from ontolake.storage.medium import (
    FORMAT_VERSION,
    KIND,
    Logged,
    Root,
    SegmentSpan,
    Stale,
    Taken,
    decode_root,
    encode_root,
)
from ontolake.storage.options import StorageOptions
from ontolake.storage.state import LogState
from ontolake.storage.types import DEFAULT_PAGE_SIZE

MAGIC = b"ontolake pages\x00\x01"
_HEADER = struct.Struct("<16sIIQ")
_SLOT = struct.Struct("<QQQQQ")
_SUM = struct.Struct("<Q")
_SLOTS = (512, 1024)
_START = 4096
_CHUNK = 1 << 20
_GROWTH = (1 << 16, 1 << 20)
_ZEROS = bytes(_GROWTH[1])
_READ = 1 << 18


class _Slot(msgspec.Struct, frozen=True):
    generation: int = 0
    segment: int = 0
    length: int = 0
    cursor: int = _START
    log_start: int = _START


class FileMedium:
    """The log, blobs and root of one database in one file. A segment is the offset of an envelope."""

    def __init__(self, path: Path, page_size: int, options: StorageOptions) -> None:
        self.name = str(path)
        self._fd, self._read_only = _open(path, options.create)
        self._lock = FileLock(self._fd, self.name, options.lock_timeout_ms / 1000)
        try:
            self.page_size, self.log_id = self._read_header(path, page_size)
        except BaseException:
            self.let_go()
            raise
        if os.fstat(self._fd).st_size <= _START:
            # Nothing is in it yet: whoever made it may have been killed before it could sync the folder.
            _sync_folder(path)
        self._envelopes = Envelopes(self.log_id)
        self._slots = b""
        self._newest_slot = _Slot()
        self._looked_behind_end = False
        self._grown = 0  # no more than a hint: others may have cut the file
        self._ended: tuple[int, int, bytes, bytes] | None = None

    def _read_header(self, path: Path, page_size: int) -> tuple[int, int]:
        head = os.pread(self._fd, _START, 0)
        if not head.strip(b"\0"):
            self._check_writable()
            head = self._create(path, page_size)
        if head.startswith(MAGIC[:14]) and len(head) < _START:
            raise Corruption(f"{self.name} is cut short: only {len(head)} bytes of its header are left")
        if not head.startswith(MAGIC[:14]):
            if head[_HEADER.size : _HEADER.size + _SUM.size] == _SUM.pack(
                    xxh3_64_intdigest(MAGIC + head[len(MAGIC) : _HEADER.size])):
                raise Corruption(f"{self.name} is a page file whose first bytes are damaged")
            what = "a native SQLite file" if head.startswith(b"SQLite format 3\0") else "no page file of Ontolake"
            raise Invalid(f"{self.name} is {what}", hint="give the path of a page file, or of a file that is not there")
        _, version, found, log_id = _HEADER.unpack_from(head)
        if _SUM.unpack_from(head, _HEADER.size)[0] != xxh3_64_intdigest(head[: _HEADER.size]):
            raise Corruption(f"the header of {self.name} does not match its checksum")
        if version != FORMAT_VERSION:
            raise Invalid(f"{self.name} has format version {version}, this build reads version {FORMAT_VERSION}",
                          hint="open it with the version of ontolake that wrote it")
        if found != page_size:
            raise Invalid(f"{self.name} has pages of {found} bytes, not of {page_size}",
                          hint=f"open it with page_size={found}")
        return found, log_id

    def _create(self, path: Path, page_size: int) -> bytes:
        """Write the header of a new file, unless another process has just done so."""
        with self._lock.threads, self._lock:
            if not os.pread(self._fd, _START, 0).strip(b"\0"):
                head = _HEADER.pack(MAGIC, FORMAT_VERSION, page_size, secrets.randbits(63))
                head = (head + _SUM.pack(xxh3_64_intdigest(head))).ljust(_START, b"\0")
                faults.reach("file: not yet created")
                # One call, which no kill can cut in two.
                os.pwrite(self._fd, head, 0)
                faults.reach("file: header written, not synced")
                os.fsync(self._fd)
                _sync_folder(path)
                faults.reach("file: created")
            return os.pread(self._fd, _START, 0)

    # the log
    def append(self, cursor: int, pieces: Sequence[bytes], nonce: bytes) -> tuple[int, int]:
        self._check_writable()
        with self._lock.threads, self._lock:
            at = self._end(cursor, through_frames=False)
            return at, self._put(FRAME, at, pieces)

    def put_blob(self, data: bytes) -> int:
        self._check_writable()
        with self._lock.threads, self._lock:
            at = self._end(self._slot().cursor, through_frames=True)
            self._put(BLOB, at, (data,))
            return at

    def _check_writable(self) -> None:
        if self._read_only:
            raise Invalid(f"{self.name} can only be read: this user may not write to it")

    def _end(self, cursor: int, *, through_frames: bool) -> int:
        """Where the log ends, with the lock held. What was left of a cut-off write is removed."""
        self._check_trimmed(cursor)
        while True:
            head = os.pread(self._fd, HEAD_SIZE, cursor)
            envelope = self._envelopes.parse(head, cursor)
            if envelope is None or not self._settled(envelope):
                if head.count(0) != len(head):
                    self._check_torn(cursor)
                    self._cut(cursor)
                return cursor
            if envelope.type == FRAME and not through_frames:
                raise Taken
            cursor = envelope.end

    def _put(self, kind: int, at: int, payload: Sequence[bytes]) -> int:
        """Have something durable at `at`; return where it ends."""
        what = "frame" if kind == FRAME else "blob"
        head, length = self._envelopes.head(kind, at, payload)
        envelope = Envelope(kind, at, length, 0)
        mark, end = envelope.mark, envelope.end
        try:
            self._grow(end)
            self._write((head, *payload, bytes(-length % 8) + UNMARKED), at, what)
        except OSError as error:
            self._cut(at)
            raise Transient(f"{self.name} cannot be written to: {error.strerror}; nothing was appended") from error
        faults.reach(f"file: {what} written, not synced")
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise DurabilityUnconfirmed(f"{self.name} could not be synced: {error.strerror}") from error
        faults.reach(f"file: {what} synced, not marked")
        os.pwrite(self._fd, self._envelopes.mark(at), mark)
        faults.reach(f"file: {what} marked")
        return end

    def _cut(self, end: int) -> None:
        os.ftruncate(self._fd, end)
        self._grown = 0

    def _grow(self, end: int) -> None:
        """Have blocks ready behind the log: syncing a write into them is quicker than making the file longer."""
        if end <= self._grown:
            return
        size = os.fstat(self._fd).st_size
        if end > size:
            more = min(max(size, _GROWTH[0]), _GROWTH[1])
            with contextlib.suppress(OSError):  # where there is no room to spare, there may still be enough
                size = end + os.pwrite(self._fd, _ZEROS[:more], end)
        self._grown = size

    def _write(self, pieces: Sequence[bytes], at: int, what: str) -> None:
        if faults.armed():
            data = b"".join(pieces)
            half = len(data) // 2
            os.pwrite(self._fd, data[:half], at)
            faults.reach(f"file: {what} partly written")
            pieces, at = (data[half:],), at + half
        done, size = os.pwritev(self._fd, pieces, at), sum(map(len, pieces))
        while done < size:
            done += os.pwrite(self._fd, memoryview(b"".join(pieces))[done:], at + done)

    def tail(self, cursor: int, *, expect: int = 1, follow: bool = True) -> Iterator[Logged]:
        try:
            if not self._ends_as_before(cursor):
                yield from self._tail(cursor, _READ if expect > 1 else HEAD_SIZE)
        except OSError as error:
            raise Transient(f"{self.name} cannot be read: {error.strerror}") from error

    def _tail(self, cursor: int, amount: int) -> Iterator[Logged]:
        # Much is read at once, since most frames are small; what does not hold in it is read again, alone.
        first, start, data = cursor, cursor, b""
        while True:
            at = cursor - start
            if at + HEAD_SIZE > len(data):
                start, at, data = cursor, 0, os.pread(self._fd, amount, cursor)
            envelope = self._envelopes.parse(data[at : at + HEAD_SIZE], cursor) or self._envelope(cursor)
            if envelope is None:
                self._check_end(cursor)
                self._remember_end(first, cursor)
                return
            if envelope.type == FRAME:
                body, mark = envelope.payload - start, envelope.mark - start
                payload: bytes | None = data[body : body + envelope.length]
                if data[mark : mark + MARK_SIZE] != self._envelopes.mark(cursor) or (
                        xxh3_64_intdigest(payload or b"") != envelope.sum):
                    payload = self._read_frame(envelope)
                if payload is None:
                    return
                yield Logged(cursor, envelope.end, payload)
                first = envelope.end
            cursor = envelope.end

    def _remember_end(self, cursor: int, end: int) -> None:
        """From `cursor` on there was nothing but blobs, up to `end`, where the log ends."""
        around = os.pread(self._fd, MARK_SIZE + HEAD_SIZE, end - MARK_SIZE)
        blank = not around[MARK_SIZE:].strip(b"\0")
        self._ended = (cursor, end, around, self._slots) if blank and cursor > _START else None

    def _ends_as_before(self, cursor: int) -> bool:
        """Whether nothing was appended since the log was last seen to end: a quick look, for those who look often.

        The slots have to be as they were, too: a log that was trimmed here may look like one that ends.
        """
        ended = self._ended
        if ended is None or ended[0] != cursor:
            return False
        _, end, around, slots = ended
        if os.pread(self._fd, MARK_SIZE + HEAD_SIZE, end - MARK_SIZE) != around:
            return False
        return os.pread(self._fd, _SLOTS[1] + 512, 0) == slots

    def _read_frame(self, envelope: Envelope) -> bytes | None:
        """A frame's payload, None if it is still in the making. Raises `Stale` if the log was trimmed there."""
        try:
            payload = os.pread(self._fd, envelope.length, envelope.payload) if self._acknowledged(envelope) else None
            if payload is not None and xxh3_64_intdigest(payload) != envelope.sum:
                raise Corruption(f"frame {envelope.offset:#x} of {self.name} does not match its checksum")
        except Corruption:
            self._check_trimmed(envelope.offset)
            raise
        if payload is None:
            self._check_trimmed(envelope.offset)
        return payload

    def _check_trimmed(self, offset: int) -> None:
        """What is before the start of the log may be gone, wholly or in part: nobody can judge it."""
        if self._slot().log_start > offset:
            raise Stale

    def _envelope(self, offset: int) -> Envelope | None:
        return self._envelopes.parse(os.pread(self._fd, HEAD_SIZE, offset), offset)

    def _check_end(self, cursor: int) -> None:
        """The log seems to end at `cursor`. Raise `Stale` if it was trimmed there, `Corruption` if it was damaged."""
        slot = self._slot()
        if slot.log_start > cursor:
            raise Stale
        head = os.pread(self._fd, HEAD_SIZE, cursor)
        if slot.cursor > cursor:
            if self._envelopes.parse(head, cursor) is not None:
                raise Stale  # it came just now, and more than it
            self._check_trimmed(cursor)
            raise Corruption(f"{self.name} is damaged at offset {cursor:#x}: the log does not end there")
        blank = head.count(0) == len(head)
        # Whoever holds the lock is writing just here, so there is nothing to judge yet.
        if not blank or not self._looked_behind_end:
            with self._lock.threads:
                try:
                    if self._lock.is_free() and self._envelope(cursor) is None:
                        self._check_torn(cursor)
                        self._looked_behind_end = True
                finally:
                    self._lock.release()

    def _check_torn(self, cursor: int) -> None:
        """Raise `Corruption` if what lies at `cursor`, or behind it, was complete once."""
        # Pieces overlap, so that what is looked for is not missed where they meet.
        start, overlap = cursor, HEAD_SIZE + MARK_SIZE
        while data := os.pread(self._fd, _CHUNK + overlap, start):
            if self._envelopes.traces(data, start, cursor):
                raise Corruption(f"{self.name} is damaged at offset {cursor:#x}: a complete write there cannot be read")
            start += _CHUNK

    def _acknowledged(self, envelope: Envelope) -> bool:
        """Whether a frame is durable; one that a crash left unmarked is made so, one in the making is not yet."""
        if self._marked(envelope):
            return True
        if self._envelope(envelope.end) is not None:
            return True
        with self._lock.threads:
            try:
                return self._lock.is_free() and self._settled(envelope)
            finally:
                self._lock.release()

    def _settled(self, envelope: Envelope) -> bool:
        """With the lock held: True once the thing is durable and marked, False if it was cut off in the making."""
        if self._marked(envelope):
            return True
        payload = os.pread(self._fd, envelope.length, envelope.payload)
        if len(payload) < envelope.length or xxh3_64_intdigest(payload) != envelope.sum:
            if self._envelope(envelope.end) is not None:
                raise Corruption(f"what lies at {envelope.offset:#x} of {self.name} does not match its checksum")
            return False
        if self._read_only:
            return False  # it was not acknowledged, and whoever may write decides what becomes of it
        # Written again before it is synced: a sync that failed once may have forgotten the pages.
        data = os.pread(self._fd, HEAD_SIZE, envelope.offset) + payload + bytes(-envelope.length % 8) + UNMARKED
        os.pwrite(self._fd, data, envelope.offset)
        os.fdatasync(self._fd)
        os.pwrite(self._fd, self._envelopes.mark(envelope.offset), envelope.mark)
        return True

    def _marked(self, envelope: Envelope) -> bool:
        mark, right = os.pread(self._fd, MARK_SIZE, envelope.mark), self._envelopes.mark(envelope.offset)
        if mark == right:
            return True
        half = MARK_SIZE // 2
        # A mark may lie on two blocks, of which a power cut kept one: then it is not there yet.
        if all(not piece.strip(b"\0") or piece == whole
               for piece, whole in ((mark[:half], right[:half]), (mark[half:], right[half:]))):
            return False
        raise Corruption(f"the mark of {envelope.offset:#x} in {self.name} is damaged")

    # reading
    def read(self, spans: Sequence[SegmentSpan]) -> list[bytes | StorageError]:
        return [self._read(segment, offset, length) for segment, offset, length in spans]

    def _read(self, segment: int, offset: int, length: int) -> bytes | StorageError:
        try:
            return self.read_one(segment, offset, length)
        except Transient as error:
            return error

    def read_one(self, segment: int, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._fd, length, segment + HEAD_SIZE + offset)
        except OSError as error:
            raise Transient(f"{self.name} cannot be read: {error.strerror}") from error

    # the root
    def _slot(self) -> _Slot:
        """The newest slot that holds."""
        data = os.pread(self._fd, _SLOTS[1] + 512, 0)
        if data == self._slots:
            return self._newest_slot
        if len(data) < _SLOTS[1] + 512:
            raise Corruption(f"{self.name} is cut short: only {len(data)} bytes of its header are left")
        found, damaged = _Slot(), False
        for at in _SLOTS:
            raw = data[at : at + _SLOT.size]
            if _SUM.unpack_from(data, at + _SLOT.size)[0] == xxh3_64_intdigest(raw, seed=self.log_id):
                slot = _Slot(*_SLOT.unpack(raw))
                found = slot if slot.generation > found.generation else found
            else:
                damaged = damaged or bool(data[at : at + _SLOT.size + _SUM.size].strip(b"\0"))
        if damaged and not found.generation:
            raise Corruption(f"the root of {self.name} is damaged")
        self._slots, self._newest_slot = data, found
        return found

    def load_root(self) -> tuple[Root, str]:
        for _ in range(8):
            slot = self._slot()
            if not slot.generation:
                return Root(FORMAT_VERSION, KIND, self.page_size, self.log_id, LogState(_START), _START), "0"
            data = os.pread(self._fd, slot.length, slot.segment + HEAD_SIZE)
            envelope = self._envelope(slot.segment)
            if envelope is not None and envelope.sum == xxh3_64_intdigest(data):
                return decode_root(data, self.name), str(slot.generation)
            if self._slot() == slot:
                break
        raise Corruption(f"the root of {self.name} at {slot.segment:#x} does not match its checksum")

    def swap_root(self, root: Root, tag: str) -> str:
        root.generation = int(tag) + 1
        data = encode_root(root)
        segment = self.put_blob(data)
        faults.reach("file: root written, slot not swapped")
        with self._lock.threads, self._lock:
            current = self._slot()
            if str(current.generation) != tag:
                raise PreconditionFailed(f"the root of {self.name} was replaced by another process")
            raw = _SLOT.pack(root.generation, segment, len(data), root.state.cursor, root.log_start)
            raw += _SUM.pack(xxh3_64_intdigest(raw, seed=self.log_id))
            os.pwrite(self._fd, raw, _SLOTS[root.generation % 2])
            faults.reach("file: slot written, not synced")
            os.fdatasync(self._fd)
            faults.reach("file: slot swapped")
        return str(root.generation)

    # space
    def reclaim(self, root: Root, dropped: Sequence[tuple[int, int]], *, sweep: bool, wipe: bool = False) -> int:
        free = wipe_range if wipe else punch_hole
        with self._lock.threads, self._lock:
            before = os.fstat(self._fd).st_blocks
            for segment, length in dropped:
                # The envelope stays, so that those who walk the log can step over the hole.
                free(self._fd, segment + HEAD_SIZE, length)
            if sweep:
                self._sweep(root, free)
            if wipe:
                os.fdatasync(self._fd)
            faults.reach("file: holes punched")
            return max(0, (before - os.fstat(self._fd).st_blocks) * 512)

    def _sweep(self, root: Root, free: Callable[[int, int, int], object]) -> None:
        """Punch out what lies before the oldest frame needed, except blobs in use."""
        live = [(part.segment, part.length) for run in root.runs for part in run.parts]
        live += [(layer.segment, layer.length) for layer in root.layers]
        slots = os.pread(self._fd, _START, 0)
        live += [_SLOT.unpack_from(slots, at)[1:3] for at in _SLOTS]
        at = _START
        for segment, length in sorted(live):
            if segment >= root.log_start:
                break
            free(self._fd, at, segment - at)
            at = max(at, Envelope(BLOB, segment, length, 0).end)
        free(self._fd, at, root.log_start - at)

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise DurabilityUnconfirmed(f"{self.name} could not be synced: {error.strerror}") from error

    def close(self) -> None:
        """Close the file, without the room behind the log, unless others are writing to it."""
        try:
            with self._lock.threads:
                try:
                    if not self._read_only and self._lock.is_free():
                        os.ftruncate(self._fd, self._end(self._slot().cursor, through_frames=True))
                finally:
                    self._lock.release()
        except (StorageError, Stale, OSError):
            pass  # the room stays, which does no harm
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalFileStorage(LogStorage):
    """A database in one local file."""

    remote = False

    def __init__(self, path: str | os.PathLike[str], *, page_size: int = DEFAULT_PAGE_SIZE, **knobs: Any) -> None:
        """Open the file, or start a new one. Raises `Invalid` if it is not a page file or its page size is another."""
        options = StorageOptions.of(knobs)
        medium = FileMedium(Path(path).absolute(), page_size, options)
        try:
            super().__init__(medium, options)
        except BaseException:
            medium.let_go()
            raise


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open(path: Path, create: bool) -> tuple[int, bool]:
    """The file, and whether it can only be read."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644), False
    except FileNotFoundError:
        if create:
            raise Invalid(f"the folder {path.parent} does not exist", hint="create it first") from None
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            with contextlib.suppress(OSError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC), True
        if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS):
            found = None if path.exists() else obstacle(path)
            why = error.strerror if found is None else found.message.partition(" cannot be made: ")[2]
            raise Invalid(f"{path} cannot be opened for writing: {why}",
                          hint="check its rights" if found is None else found.hint) from None
        raise Transient(f"{path} cannot be opened: {error.strerror}") from error
