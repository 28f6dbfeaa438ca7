"""Some lines of a file of any size, in constant memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINES = 400
MAX_BYTES = 16_000


@dataclass(frozen=True)
class Window:
    """Consecutive lines without their ends, `last` the number of the last one, `total` the lines of the file."""

    lines: tuple[str, ...]
    last: int
    total: int
    has_undecodable: bool
    is_line_cut: bool
    """Whether the only line is longer than a window; its rest is left out."""


def read_window(file: BinaryIO, first: int, last: int | None) -> Window:
    """Return lines `first` to `last` as far as they fit; at least one, cut when it alone is too long."""
    taken: list[bytes] = []
    size, number, is_open = 0, 0, True
    for number, line in enumerate(_lines(file), 1):
        if number < first or not is_open:
            continue
        size += len(line) + len(str(number)) + 2
        fits = len(taken) < MAX_LINES and (size <= MAX_BYTES or not taken)
        is_open = fits and (last is None or number <= last)
        if is_open:
            taken.append(line)
    texts = tuple(line[:MAX_BYTES].decode(errors="replace") for line in taken)
    return Window(
        lines=texts,
        last=first + len(taken) - 1,
        total=number,
        has_undecodable=any(_is_undecodable(line) for line in taken),
        is_line_cut=any(len(line) > MAX_BYTES for line in taken),
    )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield each line without its end; of a long one the first bytes, more than a window takes."""
    while piece := file.readline(MAX_BYTES + len(b"\r\n")):
        rest = piece
        while not rest.endswith(b"\n") and (rest := file.readline(65_536)):
            pass
        yield piece[:-1].removesuffix(b"\r") if piece.endswith(b"\n") else piece


def _is_undecodable(line: bytes) -> bool:
    try:
        line[:MAX_BYTES].decode()
    except UnicodeDecodeError as error:
        # A cut may fall within a character; that is no fault of the file.
        return error.start < MAX_BYTES - 3
    return False
