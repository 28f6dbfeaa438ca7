"""Matching lines as grep shows them: `path:LINE: text`, context as `path-LINE- text`."""

from collections.abc import Iterator, Mapping

_MAX_CHARACTERS = 300
_BEFORE_MATCH_BYTES = 100


def matching_lines(path: str, data: bytes, hits: Mapping[int, int], context: int) -> Iterator[str]:
    """Yield the lines of `hits` (line number to byte column of the match) with `context` lines around each.

    A `--` stands between two groups that do not touch, when there is context.
    """
    if not hits:
        return
    lines = data.removesuffix(b"\n").split(b"\n")
    last = None
    for number in sorted({n for hit in hits for n in range(hit - context, hit + context + 1)}):
        if not 1 <= number <= len(lines):
            continue
        if context and last is not None and number > last + 1:
            yield "--"
        mark = ":" if number in hits else "-"
        yield f"{path}{mark}{number}{mark} {_cut(lines[number - 1], hits.get(number, 0))}"
        last = number


def _cut(line: bytes, column: int) -> str:
    """Return at most 300 characters of a line, moved so that the match can be seen."""
    start = 0 if column < _MAX_CHARACTERS - _BEFORE_MATCH_BYTES else column - _BEFORE_MATCH_BYTES
    text = line[start : start + 4 * _MAX_CHARACTERS + 4].decode(errors="replace")
    ends_early = len(text) > _MAX_CHARACTERS or len(line) > start + 4 * _MAX_CHARACTERS + 4
    return ("…" if start else "") + text[:_MAX_CHARACTERS] + ("…" if ends_early else "")
