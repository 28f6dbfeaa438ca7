"""A Cedar file cut into its policies, each with its line and depth: the parser reports no lines and has no bounds."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|;|\s+|[^\s;"/]+|.', re.DOTALL)
"""A comment, a string, an end, a gap, or a part of a policy. A carriage return ends a comment, as in Cedar."""

_TOKEN = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|&&|\|\||[=!<>]=|::|\w+|[(\[{]|[)\]}]|[,;.+\-*!<>]', re.DOTALL)
_JOINING = frozenset({"&&", "||", "if", "when", "unless"})
_SEPARATORS = frozenset({",", ";"})
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATORS = frozenset({"==", "!=", "<=", ">=", "<", ">", ".", "+", "-", "*", "!", "has", "like", "in", "is"})


@dataclass(frozen=True)
class Statement:
    """The text of one policy, and where it stands."""

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def place_of(self, words: str) -> str:
        """Return the place of the first line that holds these words, else of the policy."""
        lines = self.text.split("\n")
        found = next((number for number, line in enumerate(lines) if words in line), 0)
        return f"{self.file}:{self.line + found}"


class _Group:
    """What stands between two brackets, as far as it was read."""

    def __init__(self, opening: str = "") -> None:
        self.opening = opening
        self.depth = 0
        self._joined = self._deepest = self._operators = self._below = 0

    def add(self, token: str) -> None:
        """Count a token that is no bracket."""
        if token in _OPERATORS:
            self._operators += 1
        elif token in _JOINING:
            self._end_operand()
            self._joined += 1
        elif token in _SEPARATORS:
            self.end_item()
        elif token in {"then", "else"}:
            self._end_operand()

    def add_group(self, inner: "_Group") -> None:
        """Count a group that was closed; `a["b"]["c"]` nests although no bracket stands in another."""
        inner.end_item()
        self._operators += inner.opening == "["
        self._below = max(self._below, inner.depth + 1)

    def end_item(self) -> None:
        """Count one of several expressions: they do not nest in each other."""
        self._end_operand()
        self.depth = max(self.depth, self._joined + self._deepest)
        self._joined = self._deepest = 0

    def _end_operand(self) -> None:
        self._deepest = max(self._deepest, self._operators + self._below)
        self._operators = self._below = 0


def depth_of(text: str) -> int:
    """Return how deeply the expressions of a policy may nest: no less than its parser would find.

    A chain nests as well: `a || b || c` is `(a || b) || c`.
    """
    open_groups = [_Group()]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _OPENING:
            open_groups.append(_Group(token))
        elif token not in _CLOSING:
            open_groups[-1].add(token)
        elif len(open_groups) > 1:
            _close(open_groups)
    while len(open_groups) > 1:
        _close(open_groups)
    open_groups[0].end_item()
    return open_groups[0].depth


def _close(open_groups: list[_Group]) -> None:
    inner = open_groups.pop()
    open_groups[-1].add_group(inner)


def statements(text: str, file: str) -> Iterator[Statement]:
    """Yield the policies; what stands behind the last `;` is one, too, so that it is not lost."""
    begin: int | None = None
    line, counted = 1, 0
    for piece in _PIECE.finditer(text):
        is_gap = piece[0].isspace() or piece[0].startswith("//")
        if begin is None and not is_gap:
            begin = piece.start()
            line, counted = line + text.count("\n", counted, begin), begin
        if piece[0] == ";" and begin is not None:
            yield Statement(file, line, text[begin : piece.end()].rstrip())
            begin = None
    if begin is not None:
        yield Statement(file, line, text[begin:].rstrip())
