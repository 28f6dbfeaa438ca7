"""The `read_file` tool for text files, PDFs and pictures. Other file tools use its test for binary files."""

import asyncio
import hashlib
import mimetypes
import os
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field

from orga.activities.adapters.threads import StopSignal, run_stoppable
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.pdf_text import (
    MAX_PDF_BYTES,
    PDF_SIGNATURE,
    PdfText,
    PdfWithoutText,
    UnreadablePdf,
    pdf_text,
)
from orga.activities.adapters.tools.root import FILE_THREADS, FileRoot, path_refusal, printable_name
from orga.activities.media import MAX_IMAGE_BYTES, Media, UnusableMedia, is_picture, loaded_media
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOutput

SNIFFED_BYTES = 8_192
"""Bytes at the start of a file that show its kind."""

_SIGNATURES = (
    (b"PK\x03\x04", "ZIP archive or Office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def is_binary(head: bytes) -> bool:
    """Return whether a file that starts with `head` is binary: it is a PDF, or there is a NUL at its start."""
    return b"\0" in head[:SNIFFED_BYTES] or head.startswith(PDF_SIGNATURE)


MAX_LINES = 400
MAX_BYTES = 16_000
_PIECE_BYTES = 65_536


class _BoundedLines:
    """Reads the lines of a file until the time is up. `is_cut` is True if that was before the end of the file."""

    def __init__(self, file: BinaryIO, is_over: Callable[[], bool]) -> None:
        self._file = file
        self._is_over = is_over
        self.is_cut = False

    def lines(self) -> Iterator[bytes]:
        """Yield each line without its line break. A line that is too long is cut, but stays longer than `MAX_BYTES`."""
        while piece := self._read_piece(self._file.readline, MAX_BYTES + len(b"\r\n")):
            rest = piece
            while rest and not rest.endswith(b"\n"):
                rest = self._read_piece(self._file.readline, _PIECE_BYTES)
            yield piece[:-1].removesuffix(b"\r") if piece.endswith(b"\n") else piece

    def count_rest(self) -> int:
        """Return the number of remaining lines. This is much quicker than `lines`."""
        count, end = 0, b"\n"
        while piece := self._read_piece(self._file.read, _PIECE_BYTES):
            count, end = count + piece.count(b"\n"), piece[-1:]
        return count + (end != b"\n")  # the last line may have no line break

    def _read_piece(self, read: Callable[[int], bytes], size: int) -> bytes:
        self.is_cut = self.is_cut or self._is_over()
        return b"" if self.is_cut else read(size)


def _is_undecodable(line: bytes) -> bool:
    try:
        line[:MAX_BYTES].decode()
    except UnicodeDecodeError as error:
        # The cut may split the last character, which has up to 4 bytes. Then the file itself is valid.
        return error.start < MAX_BYTES - 3
    return False


TIME_LIMIT_S = 10.0
"""Seconds to read one file. Other calls wait for it, because only a few files are read at the same time."""


class _ReadParameters(Parameters):
    path: str = Field(description="File to read, relative to the root.")
    start_line: int = Field(default=1, ge=1, description="First line, from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line, included.")


class _PdfBytes(bytes):
    """The content of a whole PDF, whose text is not extracted yet."""


class ReadFile:
    """Returns some lines (a window) of a text file of any size or of a PDF's text. It returns a picture as it is."""

    def __init__(self, root: FileRoot, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._pdf_processes = asyncio.Semaphore(2)
        self._last_pdf: tuple[bytes, PdfText] | None = None
        """The digest and the text of the last PDF. They are kept, because a model reads a long PDF in several calls."""
        what = (
            f"Read a text file or the text of a PDF, each line as `NUMBER<tab>text`; at most {MAX_LINES} lines "
            f"or {MAX_BYTES:,} bytes a call, the last line then says how to go on. A picture is shown."
        )
        self.spec = _ReadParameters.tool_spec("read_file", "read_only", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        parameters = _ReadParameters.parse(arguments)
        found = await run_stoppable(FILE_THREADS, self._read, parameters)
        if isinstance(found, _PdfBytes):
            found = await self._pdf_window_text(parameters, found)
        return ToolOutput(content=found) if isinstance(found, str) else _media_output(parameters.path, found)

    async def _pdf_window_text(self, parameters: _ReadParameters, data: bytes) -> str | Media:
        """Return the window of the PDF's text, or the PDF itself if it has no text."""
        try:
            found = await self._pdf_text(data)
        except PdfWithoutText:
            return Media(data, Path(parameters.path).name)
        except UnreadablePdf as error:
            raise path_refusal(parameters.path, str(error), "UnreadablePdf") from None
        text = "".join(f"[page {number}]\n{page}\n" for number, page in enumerate(found.pages, 1))
        file = BytesIO(text.encode(errors="replace"))
        return _window_text(parameters, file, lambda: False, f", the text of {found.note()}")

    async def _pdf_text(self, data: bytes) -> PdfText:
        digest = hashlib.sha256(data).digest()
        async with self._pdf_processes:
            if self._last_pdf is None or self._last_pdf[0] != digest:
                self._last_pdf = digest, await pdf_text(data)
            return self._last_pdf[1]

    def _read(self, stop: StopSignal, parameters: _ReadParameters) -> str | _PdfBytes | Media:
        """Return the window of a text file, a whole PDF, or a picture."""
        if parameters.end_line is not None and parameters.end_line < parameters.start_line:
            raise ToolError("end_line is before start_line; swap them", kind="InvalidArguments")
        with self._root.open_file(parameters.path) as file:
            head = file.read(SNIFFED_BYTES)
            file.seek(0)
            if head.startswith(PDF_SIGNATURE):
                return _PdfBytes(file.read(MAX_PDF_BYTES + 1))
            if is_picture(head):
                return Media(file.read(MAX_IMAGE_BYTES + 1), Path(parameters.path).name)
            if is_binary(head):
                guess = mimetypes.guess_type(parameters.path)[0] or "unknown kind"
                kind = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), guess)
                what = f"it is a binary file ({os.fstat(file.fileno()).st_size:,} bytes, {kind})"
                why = f"{what} and cannot be read as text; use another file"
                raise path_refusal(parameters.path, why, "BinaryFile")
            ends = self._clock() + TIME_LIMIT_S
            return _window_text(parameters, file, lambda: self._is_over(stop, ends))

    def _is_over(self, stop: StopSignal, ends: float) -> bool:
        stop.check()
        return self._clock() > ends


def _media_output(path: str, media: Media) -> ToolOutput:
    try:
        part = loaded_media(media)
    except UnusableMedia as error:
        raise path_refusal(path, str(error), "UnusableMedia") from None
    return ToolOutput(content=printable_name(path)).with_media((part,))


def _window_text(parameters: _ReadParameters, file: BinaryIO, is_over: Callable[[], bool], about: str = "") -> str:
    """Return a headline and the lines that fit. If the first line alone is too long, it is cut.

    Args:
        is_over: Returns whether the time is up, so that reading must end. It is called before each piece is read.
        about: A text that is added to the headline.
    """
    path, first = parameters.path, parameters.start_line
    source = _BoundedLines(file, is_over)
    taken, count = _taken_lines(source, first, parameters.end_line)
    count += source.count_rest()
    last = first + len(taken) - 1
    if source.is_cut and not taken:
        why = f"line {first} is not reached in {TIME_LIMIT_S:g} s; search_text finds text in it"
        raise path_refusal(path, why, "FileTooLarge")
    if not count:
        return f"{printable_name(path)} (empty)"
    if first > count:
        raise path_refusal(path, f"it has {count} lines; use a start_line up to that", "InvalidArguments")
    total = f"{count} or more" if source.is_cut else f"{count}"
    note = ", not valid UTF-8: undecodable bytes shown as \ufffd" if any(map(_is_undecodable, taken)) else ""
    lines = [f"{printable_name(path)} (lines {first}-{last} of {total}{about}{note})"]
    texts = (line[:MAX_BYTES].decode(errors="replace") for line in taken)
    lines += [f"{number}\t{text}" for number, text in enumerate(texts, first)]
    if any(len(line) > MAX_BYTES for line in taken):
        lines.append(f"[line {last} is cut at {MAX_BYTES:,} bytes; search_text finds text in the rest of it]")
    ends_file = last == count and not source.is_cut
    if not ends_file and last != parameters.end_line:
        lines.append(f"[cut at line {last} of {total}; call read_file with start_line={last + 1} for more]")
    return "\n".join(lines)


def _taken_lines(source: _BoundedLines, first: int, last: int | None) -> tuple[list[bytes], int]:
    """Return the lines of the window that fit, and the number of lines that were read so far."""
    taken: list[bytes] = []
    size, number = 0, 0
    for number, line in enumerate(source.lines(), 1):
        if number < first:
            continue
        size += len(f"{number}\t") + len(line) + len("\n")
        fits = len(taken) < MAX_LINES and (size <= MAX_BYTES or not taken)
        if not fits or (last is not None and number > last):
            break
        taken.append(line)
    return taken, number
