"""The tools that find files: `list_files` by name, `search_text` by content."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import Field

from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.read_file import is_binary
from orga.activities.adapters.tools.root import (
    INCLUDE_IGNORED_DESCRIPTION,
    OMISSIONS_TEXT,
    PATTERN_DESCRIPTION,
    TIME_LIMIT_S,
    WALK_THREADS,
    FileRoot,
    FileWalk,
    WalkedFile,
    printable_name,
)
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.text import compiled_pattern
from orga.workflows.types.tool_calls.tools import ToolOutput

_MAX_QUERY_CHARS = 1_000


class LinePattern:
    """A query that matches within lines: a plain text, or a regular expression of RE2."""

    def __init__(self, query: str, *, regex: bool, ignore_case: bool) -> None:
        if not query or len(query) > _MAX_QUERY_CHARS or "\n" in query:
            raise _invalid_query(query, f"has to be one line of 1 to {_MAX_QUERY_CHARS} characters")
        try:
            text = query.encode()
            pattern = b"(?m)(?:" + text + b")" if regex else text
            self._regex = compiled_pattern(
                pattern, literal=not regex, never_nl=True, never_capture=True, case_sensitive=not ignore_case
            )
        except UnicodeEncodeError:
            raise _invalid_query(query, "is not valid Unicode") from None
        except ValueError as error:
            raise _invalid_query(query, f"{error}; or set regex to false") from error

    def matches(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield for each matching line: its number, from 1, and the byte column of its first match."""
        start, number, counted = 0, 1, 0
        while start < len(data) and (match := self._regex.search(data, start)):
            at: int = match.start()
            if at == len(data):  # an empty match after the last line
                return
            number += data.count(b"\n", counted, at)
            counted = at
            yield number, at - (data.rfind(b"\n", 0, at) + 1)
            end = data.find(b"\n", at)
            start = len(data) if end < 0 else end + 1


def _invalid_query(query: str, why: str) -> ToolError:
    return ToolError(f"query {query[:80]!r}: {why}", kind="InvalidPattern")


_MAX_CHARACTERS = 300
_MAX_EXCERPT_BYTES = 4 * (_MAX_CHARACTERS + 1)
"""Bytes that are decoded for an excerpt. They have at least one character too many, as a character has up to four."""
_BEFORE_MATCH_BYTES = 100


def matching_lines(path: str, data: bytes, hits: Mapping[int, int], context: int) -> Iterator[str]:
    """Yield the matching lines with `context` lines before and after each. `hits` maps line numbers to byte columns.

    With context, a line `--` separates groups that are not adjacent.
    """
    lines = data.removesuffix(b"\n").split(b"\n")
    last = None
    for number in sorted({n for hit in hits for n in range(hit - context, hit + context + 1)}):
        if not 1 <= number <= len(lines):
            continue
        if context and last is not None and number > last + 1:
            yield "--"
        mark = ":" if number in hits else "-"
        yield f"{path}{mark}{number}{mark} {_line_excerpt(lines[number - 1], hits.get(number, 0))}"
        last = number


def _line_excerpt(line: bytes, column: int) -> str:
    """Return a part of the line with at most 300 characters, which includes the start of the match."""
    start = 0 if column < _MAX_CHARACTERS - _BEFORE_MATCH_BYTES else column - _BEFORE_MATCH_BYTES
    text = line[start : start + _MAX_EXCERPT_BYTES].decode(errors="replace")
    ends_early = len(text) > _MAX_CHARACTERS or len(line) > start + _MAX_EXCERPT_BYTES
    return ("…" if start else "") + text[:_MAX_CHARACTERS] + ("…" if ends_early else "")


_MAX_FILE_BYTES = 5_000_000
_MAX_OUTPUT = 16_000
_BINARY, _TOO_LARGE, _UNREADABLE = "binary", f"over {_MAX_FILE_BYTES // 1_000_000} MB", "unreadable"
_SKIP_REASONS = (_BINARY, _TOO_LARGE, _UNREADABLE)


class _SearchParameters(Parameters):
    query: str = Field(description="Text to find within one line.")
    path: str = Field(default=".", description="Folder or file to search, relative to the root.")
    pattern: str | None = Field(default=None, description=PATTERN_DESCRIPTION)
    regex: bool = Field(default=False, description="Whether `query` is a regular expression (RE2).")
    ignore_case: bool = True
    context: int = Field(default=0, ge=0, le=5, description="Lines to show before and after each match.")
    limit: int = Field(default=50, ge=1, le=500, description="Most matching lines to return.")
    include_ignored: bool = Field(default=False, description=INCLUDE_IGNORED_DESCRIPTION)


@dataclass
class _SearchFindings:
    lines: list[str] = field(default_factory=list[str])
    hits: int = 0
    """Matching lines."""
    size: int = 0
    """Bytes of `lines`."""
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Files that were not searched, by the reason in `_SKIP_REASONS`."""

    def add(self, hits: int, lines: Iterable[str]) -> None:
        """Add the lines of a file. Stop after the line that reaches the size of a result."""
        self.hits += hits
        for line in lines:
            self.lines.append(line)
            self.size += len(line.encode()) + 1
            if self.size >= _MAX_OUTPUT:
                break


class SearchText:
    def __init__(self, root: FileRoot) -> None:
        self._root = root
        what = f"Find lines that contain a text, as `path:LINE: text`; {OMISSIONS_TEXT}."
        self.spec = _SearchParameters.tool_spec("search_text", "read_only", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the matching lines. The last lines, in brackets, show what was left out."""
        parameters = _SearchParameters.parse(arguments)
        return ToolOutput(content=await WALK_THREADS.run(self._search, parameters))

    def _search(self, parameters: _SearchParameters) -> str:
        query = LinePattern(parameters.query, regex=parameters.regex, ignore_case=parameters.ignore_case)
        ignored = parameters.include_ignored
        walk = FileWalk(self._root, parameters.path, parameters.pattern, includes_ignored=ignored)
        found = _SearchFindings()
        for file in walk.files():
            if data := _searchable_text(file, found):
                hits = dict(islice(query.matches(data), parameters.limit - found.hits))
                if hits:
                    found.add(len(hits), matching_lines(printable_name(file.path), data, hits, parameters.context))
            if _is_full(found, parameters):
                break
        lines = found.lines or [f"No match for {parameters.query!r} in {printable_name(parameters.path)}"]
        return "\n".join([*lines, *_omission_notes(found, parameters, walk.cut)])


def _searchable_text(file: WalkedFile, found: _SearchFindings) -> bytes:
    r"""Return the file with `\n` as line ends. If it cannot be searched, count it as skipped and return b""."""
    try:
        with file.open() as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
    except (ToolError, OSError):
        found.skipped[_UNREADABLE] += 1
        return b""
    if is_binary(data):
        found.skipped[_BINARY] += 1
        return b""
    if len(data) > _MAX_FILE_BYTES:
        found.skipped[_TOO_LARGE] += 1
        return b""
    return data.replace(b"\r\n", b"\n")


def _is_full(found: _SearchFindings, parameters: _SearchParameters) -> bool:
    return found.hits >= parameters.limit or found.size >= _MAX_OUTPUT


def _omission_notes(found: _SearchFindings, parameters: _SearchParameters, out_of_time: bool) -> list[str]:
    notes = [f"{found.skipped[reason]} {reason}" for reason in _SKIP_REASONS if found.skipped[reason]]
    lines = [f"[skipped files: {', '.join(notes)}]"] if notes else []
    if _is_full(found, parameters):
        lines.append("[cut here, more lines may match; narrow with query, path or pattern]")
    if out_of_time:
        lines.append(f"[stopped after {TIME_LIMIT_S:g} s; narrow with path or pattern]")
    return lines


class _ListParameters(Parameters):
    path: str = Field(default=".", description="Folder to list, relative to the root.")
    pattern: str | None = Field(default=None, description=PATTERN_DESCRIPTION)
    limit: int = Field(default=200, ge=1, le=1000, description="Most paths to return.")
    include_ignored: bool = Field(default=False, description=INCLUDE_IGNORED_DESCRIPTION)


class ListFiles:
    def __init__(self, root: FileRoot) -> None:
        self._root = root
        what = f"List files, one path per line, sorted; {OMISSIONS_TEXT}."
        self.spec = _ListParameters.tool_spec("list_files", "read_only", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the paths. A last line in brackets shows what was left out."""
        parameters = _ListParameters.parse(arguments)
        return ToolOutput(content=await WALK_THREADS.run(self._listing, parameters))

    def _listing(self, parameters: _ListParameters) -> str:
        ignored = parameters.include_ignored
        walk = FileWalk(self._root, parameters.path, parameters.pattern, includes_ignored=ignored)
        paths = sorted(file.path for file in walk.files())
        lines = [printable_name(path) for path in paths[: parameters.limit]]
        if len(paths) > parameters.limit:
            lines.append(f"[{len(paths) - parameters.limit} more files not shown; narrow with path or pattern]")
        if walk.cut:
            lines.append(f"[stopped after {TIME_LIMIT_S:g} s; narrow with path]")
        matching = f" match {parameters.pattern!r}" if parameters.pattern else ""
        return "\n".join(lines) or f"No files{matching} in {printable_name(parameters.path)} ({OMISSIONS_TEXT})"
