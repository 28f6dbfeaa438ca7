"""Where a manifest uses its arguments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from orga.activities.adapters.manifests.manifest import Manifest

Where = Literal["argv", "stdin", "url", "query", "header", "json", "form", "text"]

LISTS: frozenset[Where] = frozenset({"argv", "query", "json", "form"})
"""Where a list may stand, as all of a text."""

OPTIONAL: frozenset[Where] = frozenset({"query", "header", "json", "form"})
"""Where a text whose argument has no value is left out."""


@dataclass(frozen=True)
class Use:
    """One text that may hold placeholders."""

    key: tuple[str, ...]
    """Of the text, in the file."""
    where: Where
    source: str
    when: str = ""
    """The argument without which the text is left out."""


def uses(manifest: Manifest) -> Iterator[Use]:
    """Yield every text in which a placeholder can stand."""
    if manifest.command:
        for part in manifest.command.argv:
            yield from (Use(("command", "argv"), "argv", source, part.when) for source in part.argv)
        yield Use(("command", "stdin"), "stdin", manifest.command.stdin)
    if manifest.http:
        yield Use(("http", "url"), "url", manifest.http.url)
        yield from _in_table("query", "query", manifest.http.query)
        yield from _in_table("headers", "header", manifest.http.headers)
        yield from _in_table("form", "form", manifest.http.form or {})
        yield from (Use(("http", "json"), "json", source) for source in _texts(manifest.http.json_body))
        yield Use(("http", "text"), "text", manifest.http.text or "")


def _in_table(table: str, where: Where, texts: dict[str, str]) -> Iterator[Use]:
    return (Use(("http", table, name), where, source) for name, source in texts.items())


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for item in cast("list[Any]", part):
            yield from _texts(item)
    elif isinstance(part, dict):
        for item in cast("dict[str, Any]", part).values():
            yield from _texts(item)
