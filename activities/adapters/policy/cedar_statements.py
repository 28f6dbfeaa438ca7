"""A Cedar file cut into its policies, each with its line: the parser tells no places."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|;|\s+|[^\s;"/]+|.', re.DOTALL)
"""A comment, a string, an end, a gap, or a part of a policy."""


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
        lines = self.text.splitlines()
        found = next((number for number, line in enumerate(lines) if words in line), 0)
        return f"{self.file}:{self.line + found}"


def statements(text: str, file: str) -> Iterator[Statement]:
    """Yield the policies; what stands behind the last `;` is one, too, so that it is not lost."""
    begin: int | None = None
    for piece in _PIECE.finditer(text):
        is_gap = piece[0].isspace() or piece[0].startswith("//")
        if begin is None and not is_gap:
            begin = piece.start()
        if piece[0] == ";" and begin is not None:
            yield _statement(text, file, begin, piece.end())
            begin = None
    if begin is not None:
        yield _statement(text, file, begin, len(text))


def _statement(text: str, file: str, begin: int, end: int) -> Statement:
    return Statement(file, text.count("\n", 0, begin) + 1, text[begin:end].rstrip())
