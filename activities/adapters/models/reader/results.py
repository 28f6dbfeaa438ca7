"""Tool results as values: what the texts of `list_files`, `search_text` and `read_file` say."""

import re
from dataclasses import dataclass
from typing import Literal

_HEADER = re.compile(r"^(?P<path>.+?) \(lines (?P<first>\d+)-(?P<last>\d+) of (?P<total>\d+)[^)\n]*\)\s*$", re.M)
_NUMBERED = re.compile(r"^ *(\d{1,9})\t(.*)$")
_HIT = re.compile(r"^(?P<path>[^:\n]{1,400}):(?P<line>\d{1,9}):(?: (?P<text>.*)|)$")
_CONTEXT = re.compile(r"^(?P<path>.{1,400}?)-(?P<line>\d{1,9})-(?: (?P<text>.*)|)$")
_NOT_A_PATH = re.compile(r"^[\[<#>{(*|]|[\x00-\x1f]|^\s|:$|^No (?:match|file)", re.I)

Refusal = Literal["denied", "failed"]


@dataclass(frozen=True)
class Excerpt:
    """Numbered lines of one file."""

    path: str
    lines: dict[int, str]
    total: int | None = None
    """Lines in the whole file."""


@dataclass(frozen=True)
class Hits:
    """Lines that a search found, by file."""

    excerpts: tuple[Excerpt, ...] = ()
    count: int = 0
    is_cut: bool = False
    """The tool stopped at its limit: there are more."""


def refusal_of(text: str, is_error: bool) -> Refusal | None:
    """Return how a call was refused, or None when `text` is a result."""
    if text.startswith("[Policy denied]"):
        return "denied"
    return "failed" if is_error or text.startswith(("[Error]", "[Schema validation failed]")) else None


def listed(text: str) -> tuple[tuple[str, ...], bool]:
    """Return the paths of a `list_files` result, and whether it was cut."""
    rows = [row.rstrip("\r") for row in text.split("\n")]
    paths = tuple(normal(row) for row in rows if row and len(row) <= 400 and not _NOT_A_PATH.search(row))
    return paths, any(row.startswith("[") for row in rows)


def hits_of(text: str) -> Hits:
    """Return the lines of a `search_text` result; whatever has another form is passed over."""
    found: dict[str, dict[int, str]] = {}
    count = 0
    for row in text.split("\n"):
        match = _HIT.match(row) or _CONTEXT.match(row)
        if match is not None:
            count += match.re is _HIT
            found.setdefault(normal(match["path"]), {})[int(match["line"])] = match["text"] or ""
    is_cut = any(row.startswith("[") and not row.startswith("[skipped") for row in text.split("\n"))
    return Hits(tuple(Excerpt(path, lines) for path, lines in found.items()), count, is_cut)


def excerpt_of(text: str, asked_path: str | None) -> Excerpt | None:
    """Return the lines of a `read_file` result; without its header the path is the one that was asked for."""
    header = _HEADER.search(text)
    path = header["path"] if header else asked_path
    rows = [match for row in text.split("\n") if (match := _NUMBERED.match(row))]
    if path is None or not (rows or header):
        return None
    total = int(header["total"]) if header else None
    return Excerpt(normal(path), {int(row[1]): row[2] for row in rows}, total)


def normal(path: str) -> str:
    """Return a path in the one form that evidence is kept under."""
    return path.strip().removeprefix("./")
