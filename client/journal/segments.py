"""Caches the timelines of ended segments in memory and in files. A segment that has ended never changes.

The files are in a folder that belongs to the user, who can delete them at any time. No file is written if the
application has its own codec, storage or converter, because a file holds the payloads in clear.
"""

import asyncio
import gzip
import json
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError
from temporalio.client import Client

from orga.activities.adapters.shared_files import write_atomically
from orga.client.history.values import FrugalPayloadConverter
from orga.client.journal.timeline_fold import FOLD_VERSION
from orga.client.journal.timeline_records import IterationRecord
from orga.client.server.home import server_home

MAX_MEMORY_BYTES = 64_000_000
"""Bytes of all segments in memory. Beyond this, the least recently used ones are dropped."""

MAX_FILES = 500
"""Beyond this, the oldest files are deleted, a fifth of this number at once."""

MAX_FILE_BYTES = 64_000_000
"""Compressed bytes. A larger file is ignored."""


@dataclass(frozen=True)
class SegmentKey:
    namespace: str
    workflow_id: str
    run_id: str


@dataclass(frozen=True)
class ClosedSegment:
    """A segment that has ended."""

    base: int
    """The last iteration of the segments before."""
    texts: dict[int, bytes] = field(repr=False)
    """The records as JSON, by iteration."""

    @classmethod
    def of(cls, base: int, records: Iterable[IterationRecord]) -> "ClosedSegment":
        return cls(base, {record.number: record.model_dump_json().encode() for record in records})

    @property
    def last(self) -> int:
        """The highest number of a record."""
        return max(self.texts, default=self.base)

    @property
    def size(self) -> int:
        return sum(map(len, self.texts.values()))

    def numbers(self) -> Sequence[int]:
        return sorted(self.texts)

    def record(self, number: int) -> IterationRecord | None:
        text = self.texts.get(number)
        return None if text is None else IterationRecord.model_validate_json(text)


class SegmentCache:
    """Closed segments. The most recently used ones are in memory. Files hold more of them."""

    def __init__(self, client: Client) -> None:
        converter = client.data_converter
        self._may_use_files = (
            converter.payload_codec is None
            and converter.external_storage is None
            and converter.payload_converter_class is FrugalPayloadConverter
        )
        self._segments: OrderedDict[SegmentKey, ClosedSegment] = OrderedDict()
        self._size = 0

    def in_memory(self, key: SegmentKey) -> ClosedSegment | None:
        if found := self._segments.get(key):
            self._segments.move_to_end(key)
        return found

    def read(self, key: SegmentKey) -> ClosedSegment | None:
        """Return a segment from memory or its file. A file that is damaged or not the user's own is ignored."""
        if (found := self.in_memory(key)) or not self._may_use_files:
            return found
        with suppress(OSError, EOFError, ValueError, ValidationError, KeyError):
            found = _parse_segment(key, _own_bytes(_file_of(key)))
            self._keep(key, found)
        return found

    async def add(self, key: SegmentKey, segment: ClosedSegment) -> None:
        self._keep(key, segment)
        if self._may_use_files:
            await asyncio.to_thread(_write_file, key, segment)

    def _keep(self, key: SegmentKey, segment: ClosedSegment) -> None:
        if (before := self._segments.pop(key, None)) is not None:
            self._size -= before.size
        self._segments[key] = segment
        self._size += segment.size
        while self._size > MAX_MEMORY_BYTES:
            _, oldest = self._segments.popitem(last=False)
            self._size -= oldest.size


def _write_file(key: SegmentKey, segment: ClosedSegment) -> None:
    """Write the file of a segment if that is possible. Without a file, the segment is read from the server again."""
    path = _file_of(key)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_own(path.parent.stat(follow_symlinks=False)):
            head = json.dumps({"of": _header(key), "base": segment.base}).encode()
            write_atomically(path, gzip.compress(b"\n".join([head, *segment.texts.values()]), compresslevel=1))
            _delete_oldest(path.parent)


def _file_of(key: SegmentKey) -> Path:
    name = sha256(json.dumps(_header(key)).encode()).hexdigest()
    return server_home().timelines / f"{name}.jsonl.gz"


def _header(key: SegmentKey) -> list[str | int]:
    return [FOLD_VERSION, key.namespace, key.workflow_id, key.run_id]


def _parse_segment(key: SegmentKey, content: bytes) -> ClosedSegment:
    first_line, *texts = gzip.decompress(content).split(b"\n")
    head = json.loads(first_line)
    if head["of"] != _header(key):
        raise ValueError("the file is of another segment")
    return ClosedSegment(int(head["base"]), {IterationRecord.model_validate_json(text).number: text for text in texts})


def _own_bytes(path: Path) -> bytes:
    """Return the content of a file that only this user can write and read. Raise OSError for any other."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) and _is_own(status) and status.st_size <= MAX_FILE_BYTES):
            raise PermissionError(f"{path} is not a file of this user alone")
        return file.read()


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _delete_oldest(folder: Path) -> None:
    files = list(folder.glob("*.jsonl.gz"))
    if len(files) > MAX_FILES:
        for path in sorted(files, key=lambda path: path.lstat().st_mtime)[: MAX_FILES // 5]:
            path.unlink(missing_ok=True)
