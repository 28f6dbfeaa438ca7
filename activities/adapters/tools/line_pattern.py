"""Searching lines in time linear in the text, whatever the pattern."""

from collections.abc import Iterator

from orga.activities.ports import ToolError
from orga.workflows.types.text import compiled

_MAX_LENGTH = 1_000


class LinePattern:
    """A query, plain or a regular expression of RE2, which has no look-around and no back-references."""

    def __init__(self, query: str, *, regex: bool, ignore_case: bool) -> None:
        if not query or len(query) > _MAX_LENGTH or "\n" in query:
            raise _invalid(query, f"has to be one line of 1 to {_MAX_LENGTH} characters")
        try:
            text = query.encode()
            pattern = b"(?m)(?:" + text + b")" if regex else text
            self._regex = compiled(
                pattern, literal=not regex, never_nl=True, never_capture=True, case_sensitive=not ignore_case
            )
        except UnicodeEncodeError:
            raise _invalid(query, "is not valid Unicode") from None
        except ValueError as error:
            raise _invalid(query, f"{error}; or set regex to false") from error

    def hits(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the number of each line that matches, from 1, and the byte offset of its first match in it."""
        start, number, counted = 0, 1, 0
        while start < len(data) and (match := self._regex.search(data, start)) and match.start() < len(data):
            at: int = match.start()
            number += data.count(b"\n", counted, at)
            counted = at
            yield number, at - (data.rfind(b"\n", 0, at) + 1)
            end = data.find(b"\n", at)
            start = len(data) if end < 0 else end + 1


def _invalid(query: str, why: str) -> ToolError:
    return ToolError(f"query {query[:80]!r}: {why}", kind="InvalidPattern")
