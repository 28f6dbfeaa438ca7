"""What a task refers to: URLs, files, issues, pull requests, and references of the user's own kinds."""

import re
from collections.abc import Iterator

from orga.workflows.types.hydration import PreHydration, Reference
from orga.workflows.types.text import Fuel, LinearPattern

MAX_VALUE_CHARS = 2_000
"""A longer match is no reference but data."""

MAX_WORK = 50_000_000
"""Of all custom patterns together: 0.4 s at worst, far below the 2 s that a workflow task may take."""

_HIDDEN = "\n\x00\n"
"""Stands where a reference was taken out, so that nothing in it or across it is another one."""

_URL = re.compile(r"(?<![a-z0-9])https?://(?:[^\W_]|\[[0-9a-f:.]+\])", re.I)
_NOT_IN_URL = frozenset('<>"`\\^{|}\x00。，、！？；：「」『』【】《》“”')
_OPENED_BY = {")": "(", "]": "["}
_PATH = re.compile(r"(?:^|(?<=[\s(\[\"'`]))[./~][\w./~-]+", re.ASCII)
_RELATIVE = re.compile(r"(?:\.{1,2}|~)/[\w./-]*\w", re.ASCII)
_WITH_EXTENSION = re.compile(r"(?:/(?!/)|\.(?=[a-z]))[\w./-]*\.[a-z0-9]+", re.ASCII | re.I)
_REPOSITORY = r"[a-z0-9][a-z0-9-]{0,38}/[\w.-]{1,100}"
_NUMBER = r"#[0-9]{1,10}(?!\w|\.[0-9])"
_PR = re.compile(rf"(?<!\w)PR(?:\s*|\s+{_REPOSITORY}){_NUMBER}", re.ASCII | re.I)
_ISSUE = re.compile(rf"(?<![\w/&#])(?:(?<![.-]){_REPOSITORY})?{_NUMBER}", re.ASCII | re.I)

_TRAILING = ".,;:!?'*([…’"


def references_in(task: str, config: PreHydration) -> tuple[Reference, ...]:
    """Return the references, each value once, in the order url, file, issue, pr, custom, and as they stand in the task.

    Source: reference 1.15, with its defects put right: `PR #55` is one reference, nothing in a URL is another.
    """
    found: dict[str, Reference] = {}
    for ref_type, value in _all(task, config):
        if value and len(value) <= MAX_VALUE_CHARS:
            found.setdefault(value, Reference(ref_type=ref_type, value=value))
        if len(found) >= config.max_references:
            break
    return tuple(found.values())


def _all(task: str, config: PreHydration) -> Iterator[tuple[str, str]]:
    text = task.replace("\x00", " ")
    urls = _urls(text)
    yield from (("url", text[start:stop]) for start, stop in urls)
    text = _without(text, urls)
    yield from (("file", path) for match in _PATH.finditer(text) if (path := _path(match.group())))
    pulls = list(_PR.finditer(text))
    rest = _without(text, [match.span() for match in pulls])
    yield from (("issue", match.group()) for match in _ISSUE.finditer(rest))
    yield from (("pr", " ".join(match.group().split())) for match in pulls)
    fuel = Fuel(MAX_WORK)
    for custom in config.custom_patterns:
        yield from ((custom.ref_type, value.strip()) for value in LinearPattern(custom.pattern).found(text, fuel))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    starts, stops = [0, *(stop for _, stop in spans)], [*(start for start, _ in spans), len(text)]
    return _HIDDEN.join(text[start:stop] for start, stop in zip(starts, stops, strict=True))


def _urls(text: str) -> list[tuple[int, int]]:
    """Return where URLs stand, each without the punctuation of the sentence around it."""
    spans: list[tuple[int, int]] = []
    at = 0
    while match := _URL.search(text, at):
        value = text[match.start() : _end_of_url(text, match.start())].rstrip(_TRAILING)
        at = match.start() + len(value)
        spans.append((match.start(), at))
    return spans


def _end_of_url(text: str, start: int) -> int:
    """Return where the URL stops: at a space, at what no URL holds, or at a bracket that closes none of its own."""
    opened = {"(": 0, "[": 0}
    for index in range(start, len(text)):
        character = text[index]
        if character.isspace() or character in _NOT_IN_URL:
            return index
        if character in opened:
            opened[character] += 1
        elif opener := _OPENED_BY.get(character):
            opened[opener] -= 1
            if opened[opener] < 0:
                return index
    return len(text)


def _path(token: str) -> str:
    """Return the path that a word is, or nothing: `./x`, `../x`, `~/x`, or with an extension `/x.y` and `.x/y.z`."""
    path = token.rstrip(".-")
    return path if _RELATIVE.fullmatch(path) or _WITH_EXTENSION.fullmatch(path) else ""
