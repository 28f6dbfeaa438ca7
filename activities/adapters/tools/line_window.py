"""Some lines of a file of any size, in constant memory and bounded time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINES = 400
MAX_BYTES = 16_000
_PIECE_BYTES = 65_536


@dataclass(frozen=True)
class Window:
    """Consecutive lines without their ends, `last` the number of the last one, `total` the lines of the file."""

    lines: tuple[str, ...]
    last: int
    total: int
    is_total_known: bool
    """False: the time was up before the end of the file, and `total` lines were seen."""
    has_undecodable: bool
    is_line_cut: bool
    """Whether the only line is longer than a window; its rest is left out."""


def read_window(file: BinaryIO, first: int, last: int | None, is_over: Callable[[], bool]) -> Window:
    """Return lines `first` to `last` as far as they fit; at least one, cut when it alone is too long.

    `is_over` says whether the time is up; it is asked for each piece, and from then on nothing is read.
    """
    taken: list[bytes] = []
    source = _Lines(file, is_over)
    size, number = 0, 0
    for number, line in enumerate(source.lines(), 1):
        if number < first:
            continue
        size += len(line) + len(str(number)) + 2
        fits = len(taken) < MAX_LINES and (size <= MAX_BYTES or not taken)
        if not fits or (last is not None and number > last):
            break
        taken.append(line)
    texts = tuple(line[:MAX_BYTES].decode(errors="replace") for line in taken)
    return Window(
        lines=texts,
        last=first + len(taken) - 1,
        total=number + source.count_rest(),
        is_total_known=not source.is_cut,
        has_undecodable=any(_is_undecodable(line) for line in taken),
        is_line_cut=any(len(line) > MAX_BYTES for line in taken),
    )


class _Lines:
    """The lines of a file up to where the time is up; `is_cut` says whether that was before its end."""

    def __init__(self, file: BinaryIO, is_over: Callable[[], bool]) -> None:
        self._file = file
        self._is_over = is_over
        self.is_cut = False

    def lines(self) -> Iterator[bytes]:
        """Yield each line without its end; of a long one the first bytes, more than a window takes."""
        while piece := self._read(self._file.readline, MAX_BYTES + len(b"\r\n")):
            rest = piece
            while rest and not rest.endswith(b"\n"):
                rest = self._read(self._file.readline, _PIECE_BYTES)
            yield piece[:-1].removesuffix(b"\r") if piece.endswith(b"\n") else piece

    def count_rest(self) -> int:
        """Return how many lines are left; they are only counted, which is much quicker."""
        count, end = 0, b"\n"
        while piece := self._read(self._file.read, _PIECE_BYTES):
            count, end = count + piece.count(b"\n"), piece[-1:]
        return count + (end != b"\n")

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        self.is_cut = self.is_cut or self._is_over()
        return b"" if self.is_cut else read(size)


def _is_undecodable(line: bytes) -> bool:
    try:
        line[:MAX_BYTES].decode()
    except UnicodeDecodeError as error:
        # A cut may fall within a character; that is no fault of the file.
        return error.start < MAX_BYTES - 3
    return False
