"""The `.gitignore` files of a folder tree. RE2 matches their patterns in linear time.

As in git, each file and folder is matched on its own, and nothing inside an ignored folder is looked at. Libraries also
match the folders above a path. If `.gitignore` files are nested, their results differ from git.
"""

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import re2

from orga.workflows.types.text import compiled_pattern

_RE2: Any = re2

FILE_NAME = ".gitignore"
_MAX_BYTES = 64_000
_MAX_PATTERNS = 2_000
_MAX_MEMORY_BYTES = 64 * 1024 * 1024
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class IgnoreRules:
    """The patterns that apply in a folder: those of its own file, and those of the folders above it."""

    def __init__(self, files: "tuple[tuple[int, _IgnoreFile], ...]" = ()) -> None:
        """Take the files, outermost first. Each has the length of its folder's path including the last slash."""
        self._files = files

    def in_folder(self, prefix: str, folder: int | Path) -> Self:
        """Return the rules for a folder inside. Its own file has no effect if it is a link (as in git) or too large.

        Args:
            prefix: The folder's path from the root, with a slash at its end. "" for the root.
            folder: The folder's descriptor or path.
        """
        file = _parsed_file(_file_content(folder))
        return type(self)((*self._files, (len(prefix), file))) if file.patterns else self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path is ignored. The nearest file with a matching pattern decides, by its last match."""
        for start, file in reversed(self._files):
            decision = file.decision(os.fsencode(path[start:]) + b"/" * is_folder)
            if decision is not None:
                return decision
        return False


NO_IGNORE_RULES = IgnoreRules()


def _file_content(folder: int | Path) -> bytes:
    """Return the content of the folder's file, or b"" if there is none or it cannot be used."""
    with suppress(OSError):
        path, parent = (FILE_NAME, folder) if isinstance(folder, int) else (folder / FILE_NAME, None)
        with os.fdopen(os.open(path, _FILE_FLAGS, dir_fd=parent), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                content = file.read(_MAX_BYTES + 1)
                return content if len(content) <= _MAX_BYTES else b""
    return b""


class _Pattern(NamedTuple):
    regex: Any
    ignores: bool
    """False for a line with `!`: a path that matches is not ignored."""


@dataclass(frozen=True)
class _IgnoreFile:
    patterns: tuple[_Pattern, ...]
    """The last line of the file comes first."""
    any_pattern: Any
    """Matches each path that one of the patterns matches. It is quicker, because most paths match no pattern."""

    def decision(self, path: bytes) -> bool | None:
        """Return whether the path is ignored, or None if no pattern matches it."""
        if not self.any_pattern.fullmatch(path):
            return None
        return next(pattern.ignores for pattern in self.patterns if pattern.regex.fullmatch(path))


@lru_cache(maxsize=64)
def _parsed_file(content: bytes) -> _IgnoreFile:
    found: list[_Pattern] = []
    sources: list[bytes] = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:_MAX_PATTERNS]:
        with suppress(ValueError):  # git does not use an invalid pattern either
            if source := _pattern_source(line.removesuffix(b"\r").decode("latin-1").removeprefix("!")):
                found.append(_Pattern(_compiled(source), ignores=not line.startswith(b"!")))
                sources.append(source)
    return _IgnoreFile(tuple(reversed(found)), _compiled(b"|".join(sources)) if sources else None)


def _compiled(source: bytes) -> Any:
    """Compile a pattern over bytes, as git matches them."""
    return compiled_pattern(source, encoding=_RE2.Options.Encoding.LATIN1, dot_nl=True, max_mem=_MAX_MEMORY_BYTES)


_PART = re.compile(r"\\(.)|\[([!^]?)(\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]|(\*+)|(\?)|([^\\\[*?]+)", re.DOTALL)
_CLASS_PART = re.compile(r"\[:[a-z]+:\]|\\(.)|(.)", re.DOTALL)


def _pattern_source(line: str) -> bytes:
    """Return the regular expression for a line, or b"" for a comment or an empty line.

    It matches the path of a folder with a slash at its end. Raise ValueError if the line is invalid.
    """
    if line.startswith("#"):
        return b""
    line = re.sub(r"(?<!\\) +\Z", "", line)
    pattern = line.removesuffix("/")
    if not pattern.strip("/"):
        return b""
    is_anchored = "/" in pattern
    parts = pattern.removeprefix("/").split("/")
    source = "" if is_anchored else "(?:.*/)?"
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**" and is_anchored:
            source += ".+" if is_last else "(?:.*/)?"
        else:
            source += _part_source(part) + ("" if is_last else "/")
    return f"(?:{source}{'/' if line.endswith('/') else '/?'})".encode("latin-1")


def _part_source(part: str) -> str:
    if not part.strip("*"):
        return "[^/]+"  # `src/*` does not match `src/`
    source, at = "", 0
    while at < len(part):
        found = _PART.match(part, at)
        if found is None:
            raise ValueError(f"{part!r} has a bracket or a backslash without an end")
        escaped, negation, members, stars, question, text = found.groups()
        if members is not None:
            source += f"[{'^/' if negation else ''}{_CLASS_PART.sub(_class_member, members)}]"
        elif stars or question:
            source += "[^/]*" if stars else "[^/]"
        else:
            source += re.escape(escaped or text)
        at = found.end()
    return source


def _class_member(found: re.Match[str]) -> str:
    escaped, character = found.groups()
    if escaped:
        return re.escape(escaped)
    return found[0] if character in (None, "-") else re.escape(character)
