"""The tools that change files: `write_file` and `edit_file`. A record of edits keeps a call from editing twice."""

import fcntl
import hashlib
import os
import re
import secrets
import sqlite3
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from pydantic import Field

from orga.activities.adapters.threads import StopSignal, run_stoppable
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.read_file import is_binary
from orga.activities.adapters.tools.root import (
    FILE_THREADS,
    FileRoot,
    open_in_folder,
    path_errors,
    path_refusal,
    printable_name,
    refuse_irregular,
)
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOutput

_MAX_WRITTEN = 1_000_000
"""Bytes of a file."""

LOCK_WAIT_S = 10.0
"""Seconds to wait for another process that holds the lock of the folder."""
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _WriteParameters(Parameters):
    path: str = Field(description="File to write, relative to the root; missing folders are made.")
    content: str = Field(description="The whole new content.")


class WriteFile:
    """Replaces whole files. It cannot append, because a repeated call after a lost answer would append twice."""

    def __init__(self, root: FileRoot) -> None:
        self._root = root
        what = f"Create a text file or replace its whole content, at most {_MAX_WRITTEN:,} bytes of UTF-8."
        self.spec = _WriteParameters.tool_spec("write_file", "idempotent", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Replace the file in one step: readers see the old or the new content, but never a mix."""
        parameters = _WriteParameters.parse(arguments)
        data = _encoded_text("content", parameters.content)
        if len(data) > _MAX_WRITTEN:
            limits = f"content has {len(data):,} bytes, at most {_MAX_WRITTEN:,} can be written"
            raise ToolError(f"{limits}; split it into several files", kind="InvalidArguments")
        verb = "Replaced" if await replace_file(self._root, parameters.path, data) else "Created"
        return ToolOutput(content=f"{verb} {printable_name(parameters.path)} ({len(data):,} bytes)")


async def replace_file(root: FileRoot, path: str, data: bytes) -> bool:
    """Write a whole file below the root, and create missing folders. Return whether there was a file before.

    After a cancellation nothing is replaced, because somebody may have written a newer file by then.
    """
    return await run_stoppable(FILE_THREADS, _write_replacing, root, path, data)


def _write_replacing(stop: StopSignal, root: FileRoot, path: str, data: bytes) -> bool:
    target = _located_file(root, path)
    with path_errors(path), root.folder_to_write(path, target) as folder:
        mode = _existing_mode(path, target, folder)
        _replace_in_folder(stop, _FolderEntry(path, folder, target.name), data, mode)
    return mode is not None


def _located_file(root: FileRoot, path: str) -> PurePosixPath:
    target = root.locate(path)
    if not target.name:
        raise path_refusal(path, "it is a folder; name a file in it", "IsAFolder")
    return target


def _existing_mode(path: str, target: PurePosixPath, folder: int) -> int | None:
    try:
        status = os.stat(target.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_irregular(path, status)
    return stat.S_IMODE(status.st_mode)


@dataclass(frozen=True)
class _FolderEntry:
    path: str
    """The path as the model wrote it, for errors."""
    folder: int
    """The descriptor of the open folder."""
    name: str


@contextmanager
def _locked_folder(entry: _FolderEntry, stop: StopSignal) -> Generator[None]:
    """Hold the lock of a folder, so that no other file tool on this machine replaces a file in it."""
    ends = time.monotonic() + LOCK_WAIT_S
    while not _try_lock(entry.folder):
        stop.check()
        if time.monotonic() > ends:
            raise _busy_error(entry.path, "another process keeps its folder locked; try again later")
        time.sleep(0.01)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(entry.folder, fcntl.LOCK_UN)


def _busy_error(path: str, why: str) -> ToolError:
    return ToolError(f"{printable_name(path)}: {why}", kind="FileBusy", retryable=True, acted="no")


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # some network file systems cannot lock a folder
    return True


def _replace_in_folder(
    stop: StopSignal, entry: _FolderEntry, data: bytes, mode: int | None, is_due: Callable[[], bool] = lambda: True
) -> bool:
    """Replace a file, and return whether it was replaced. `mode` has its permission bits, None for a new file.

    `is_due` decides at the last moment, under the folder's lock, whether to replace the file.
    """
    folder, temporary = entry.folder, f".orga-{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE_FLAGS, 0o666, dir_fd=folder), "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        with _locked_folder(entry, stop):
            if not is_due():
                return False
            stop.begin_effect()
            os.replace(temporary, entry.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(OSError):  # after a replacement, there is no such file any more
            os.unlink(temporary, dir_fd=folder)
    os.fsync(folder)
    return True


_MAX_EDITED = 5_000_000
"""Bytes of a file, before and after an edit."""

_KEPT_S = 30 * 86_400
"""Seconds that an edit is recorded. After that, a run that is rewound may repeat it."""

_RETRY_S = 10.0
"""Seconds in which the tool tries again if others keep changing the file during the edit."""

_MAX_REPLACED = 100_000
_MAX_PLACES = 1_000
_MAX_SHOWN_PLACES = 10
_MAX_SHOWN_LINES = 8
_MAX_LINE_CHARS = 300
_MIN_SIMILARITY = 60.0
"""The least similarity of a line that is shown as the nearest one: a score of rapidfuzz from 0 to 100."""


@dataclass(frozen=True)
class _RecordedEdit:
    before: bytes
    """sha256 of the file before the edit."""
    after: bytes
    """sha256 of the file after the edit."""
    is_done: bool
    """True if the file was certainly replaced. False also if the worker died before it could record that."""


class EditRecords:
    """The edits of this machine's workers, by idempotency key, in a database that agents cannot write.

    An edit is recorded before the file is replaced. Later, the content of the file shows whether that happened.
    """

    def __init__(self, path: Path | None) -> None:
        """Take the path of the database, which the first use creates. With None, the records stay in memory."""
        self._path = path
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None

    def find(self, key: str) -> _RecordedEdit | None:
        rows = self._execute("SELECT before, after, done FROM edits WHERE key = ?", key)
        return _RecordedEdit(rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None

    def begin(self, key: str, before: bytes, after: bytes) -> None:
        now = int(time.time())
        self._execute("DELETE FROM edits WHERE at < ?", now - _KEPT_S)
        self._execute("INSERT OR REPLACE INTO edits VALUES (?, ?, ?, 0, ?)", key, before, after, now)

    def remove(self, key: str) -> None:
        """Remove the record of an edit that was not made."""
        self._execute("DELETE FROM edits WHERE key = ?", key)

    def finish(self, key: str) -> None:
        """Mark the edit as done. If this fails, the call still succeeds, because the edit itself is recorded."""
        with suppress(ToolError):
            self._execute("UPDATE edits SET done = 1 WHERE key = ?", key)

    def _execute(self, statement: str, *values: object) -> list[Any]:
        try:
            with self._lock:
                return self._database().execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            why = f"the record of edits {self._path} cannot be used: {error}; make its folder writable"
            raise ToolError(why, kind="RecordError", retryable=True, acted="no") from error

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            if self._path:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = sqlite3.connect(
                self._path or ":memory:", timeout=10, isolation_level=None, check_same_thread=False
            )
            columns = "key TEXT PRIMARY KEY, before BLOB, after BLOB, done INTEGER, at INTEGER"
            opened.execute(f"CREATE TABLE IF NOT EXISTS edits ({columns})")
            opened.execute("CREATE INDEX IF NOT EXISTS edits_by_time ON edits (at)")
            self._opened = opened
        return self._opened


class _EditParameters(Parameters):
    path: str = Field(description="File to edit, relative to the root.")
    old_text: str = Field(
        min_length=1,
        description="Text to replace, exactly as in the file, without line numbers. It has to be in the file once.",
    )
    new_text: str = Field(description="Text to put in its place; empty removes it.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class EditFile:
    """Replaces a text in a file and keeps all other bytes. The new text gets the line ends of the file."""

    def __init__(self, root: FileRoot, records: EditRecords) -> None:
        self._root = root
        self._records = records
        what = (
            "Replace a text in a text file by another one. "
            "Refused unless `old_text` is in the file exactly once, or `replace_all` is true."
        )
        self.spec = _EditParameters.tool_spec("edit_file", "idempotent", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Make the edit, unless an earlier attempt of this call has made it."""
        parameters = _EditParameters.parse(arguments)
        edit = _TextEdit.parse(parameters)
        return ToolOutput(content=await run_stoppable(FILE_THREADS, self._edit, parameters.path, edit, context))

    def _edit(self, stop: StopSignal, path: str, edit: "_TextEdit", context: ToolContext) -> str:
        target = _located_file(self._root, path)
        ends = time.monotonic() + _RETRY_S
        with path_errors(path), self._root.folder_to_write(path, target, makes_folders=False) as folder:
            while (edited := self._edit_once(stop, _FolderEntry(path, folder, target.name), edit, context)) is None:
                if time.monotonic() > ends:
                    raise _busy_error(path, "it keeps changing; try again later")
        return edited

    def _edit_once(self, stop: StopSignal, entry: _FolderEntry, edit: "_TextEdit", context: ToolContext) -> str | None:
        """Return the result, or None if somebody else changed the file during the edit."""
        path = entry.path
        with open_in_folder(path, entry.name, entry.folder) as file:
            status = os.fstat(file.fileno())
            data = file.read(_MAX_EDITED + 1)
        if is_binary(data):
            why = "it is a binary file and cannot be edited as text; use another file"
            raise path_refusal(path, why, "BinaryFile")
        _refuse_too_large(path, data)
        key, digest = context.idempotency_key, hashlib.sha256(data).digest()
        recorded = self._records.find(key)
        text = _NormalisedText(data)
        if recorded and digest != recorded.before:
            if digest == recorded.after or recorded.is_done:
                why = "an earlier attempt of this call has made the edit, so it was not repeated"
                return f"Edited {printable_name(path)}: {why}"
            raise _unknown_outcome(path)
        if recorded is None and context.attempt > 1 and edit.may_be_made(text.data):
            raise _unknown_outcome(path)
        offsets = _offsets_to_replace(path, text, edit)
        edited = text.replaced(offsets, edit)
        _refuse_too_large(path, edited)
        self._records.begin(key, digest, hashlib.sha256(edited).digest())
        mode = stat.S_IMODE(status.st_mode)
        if not _replace_in_folder(stop, entry, edited, mode, lambda: _is_unchanged(status, entry)):
            self._records.remove(key)
            return None
        self._records.finish(key)
        where = f"line {text.line_number(offsets[0])}" if len(offsets) == 1 else f"{len(offsets):,} places"
        return f"Edited {printable_name(path)} ({where}, {len(edited):,} bytes)"


def _is_unchanged(status: os.stat_result, entry: _FolderEntry) -> bool:
    now = os.stat(entry.name, dir_fd=entry.folder, follow_symlinks=False)
    return all(getattr(now, key) == getattr(status, key) for key in ("st_dev", "st_ino", "st_size", "st_mtime_ns"))


@dataclass(frozen=True)
class _TextEdit:
    r"""The old and the new text of an edit, in UTF-8 and with `\n` as line ends."""

    old: bytes
    new: bytes
    replaces_all: bool

    @classmethod
    def parse(cls, parameters: _EditParameters) -> "_TextEdit":
        given = {name: getattr(parameters, name).replace("\r\n", "\n") for name in ("old_text", "new_text")}
        old, new = (_encoded_text(name, text) for name, text in given.items())
        if old == new:
            raise ToolError("old_text and new_text are equal; there is nothing to edit", kind="InvalidArguments")
        return cls(old, new, parameters.replace_all)

    def may_be_made(self, text: bytes) -> bool:
        """Return whether a file with this text may already have been edited."""
        return self.new in text and (self.old not in text or self.old in self.new)


def _encoded_text(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} is not valid Unicode at character {error.start}", kind="InvalidArguments") from None


class _NormalisedText:
    r"""The bytes of a file with `\n` as line ends. Its offsets can be converted back to those of the file."""

    def __init__(self, original: bytes) -> None:
        self._original = original
        self.data = original.replace(b"\r\n", b"\n")
        self._shifted = [found.start() - index for index, found in enumerate(re.finditer(b"\r\n", original))]
        r"""The offset in `data` of each `\n` that is `\r\n` in the file."""

    def occurrences(self, wanted: bytes, step: int) -> Iterator[int]:
        """Yield each offset of the wanted text. The search continues `step` bytes after a found offset."""
        at = self.data.find(wanted)
        while at >= 0:
            yield at
            at = self.data.find(wanted, at + step)

    def line_number(self, offset: int) -> int:
        return self.data.count(b"\n", 0, offset) + 1

    def replaced(self, offsets: list[int], edit: _TextEdit) -> bytes:
        """Return the file with the new text in place of the old one at these offsets. All other bytes stay."""
        has_crlf = len(self._shifted) * 2 > self.data.count(b"\n")
        new = edit.new.replace(b"\n", b"\r\n") if has_crlf else edit.new
        parts: list[bytes] = []
        end = 0
        for offset in offsets:
            parts += [self._original[end : self._original_offset(offset)], new]
            end = self._original_offset(offset + len(edit.old))
        return b"".join([*parts, self._original[end:]])

    def _original_offset(self, offset: int) -> int:
        return offset + bisect_left(self._shifted, offset)


def _refuse_too_large(path: str, data: bytes) -> None:
    if len(data) > _MAX_EDITED:
        raise path_refusal(path, f"it has more than {_MAX_EDITED:,} bytes; edit a smaller file", "FileTooLarge")


def _unknown_outcome(path: str) -> ToolError:
    why = "an earlier attempt of this call may have made the edit; read the file before you edit it again"
    return ToolError(f"{printable_name(path)}: {why}", kind="OutcomeUnknown", acted="maybe")


def _offsets_to_replace(path: str, text: _NormalisedText, edit: _TextEdit) -> list[int]:
    """Return the offsets of the old text. Raise ToolError if there are none, or more than the edit allows."""
    if edit.replaces_all:
        offsets = list(islice(text.occurrences(edit.old, len(edit.old)), _MAX_REPLACED + 1))
        if len(offsets) > _MAX_REPLACED:
            why = f"old_text is in the file more than {_MAX_REPLACED:,} times; replace a longer text"
            raise path_refusal(path, why, "TooManyPlaces")
    else:
        offsets = list(islice(text.occurrences(edit.old, 1), _MAX_PLACES))  # includes overlapping ones: also ambiguous
    if not offsets:
        why = "old_text is not in the file; read it again and copy the text exactly, without line numbers"
        raise path_refusal(path, why + _nearest_lines(text.data, edit.old), "TextNotFound")
    if len(offsets) > 1 and not edit.replaces_all:
        raise path_refusal(path, _ambiguity_text(text, offsets), "TextNotUnique")
    return offsets


def _ambiguity_text(text: _NormalisedText, offsets: list[int]) -> str:
    lines = list(dict.fromkeys(text.line_number(offset) for offset in offsets[:_MAX_SHOWN_PLACES]))
    more = " and more" if len(offsets) > _MAX_SHOWN_PLACES else ""
    count = f"{_MAX_PLACES:,} times or more" if len(offsets) == _MAX_PLACES else f"{len(offsets)} times"
    where = f"in line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}{more}"
    return f"old_text is in the file {count}, {where}; add the lines around it, or set replace_all to true"


def _nearest_lines(data: bytes, old: bytes) -> str:
    """Return the lines of the file that are most like a missing text, or "". Only its longest line is compared."""
    from rapidfuzz import fuzz, process  # imported late: deliveries use this module without the tools

    old_lines = old.decode(errors="replace").split("\n")
    index = max(range(len(old_lines)), key=lambda number: len(old_lines[number].strip()))
    lines = data.decode(errors="replace").split("\n")
    choices = [line.strip()[:_MAX_LINE_CHARS] for line in lines]
    longest = old_lines[index].strip()[:_MAX_LINE_CHARS]
    found = process.extractOne(longest, choices, scorer=fuzz.ratio, score_cutoff=_MIN_SIMILARITY) if longest else None
    if found is None:
        return ""
    first = max(int(found[2]) - index, 0)
    shown = lines[first : first + min(len(old_lines), _MAX_SHOWN_LINES)]
    numbered = [f"{number}\t{line[:_MAX_LINE_CHARS]}" for number, line in enumerate(shown, first + 1)]
    return "\n".join([". The nearest place is:", *numbered])
