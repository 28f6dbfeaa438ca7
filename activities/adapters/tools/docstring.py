"""Google-style docstrings: the first paragraph, and what `Args:` says about each parameter."""

import inspect
import re
from collections.abc import Iterable

_SECTION = re.compile(r"[A-Z][A-Za-z ]*:")
_ENTRY = re.compile(r"(?P<indent>\s*)\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")


def summary(docstring: str) -> str:
    """Return the first paragraph on one line."""
    return " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())


def argument_texts(docstring: str) -> dict[str, str]:
    """Return the text of each entry of the `Args:` section, continuation lines joined."""
    texts: dict[str, list[str]] = {}
    current: list[str] = []
    indent: int | None = None
    for line in _args_section(inspect.cleandoc(docstring).splitlines()):
        entry = _ENTRY.fullmatch(line)
        if entry and (indent is None or len(entry["indent"]) <= indent):
            indent = len(entry["indent"])
            current = texts.setdefault(entry["name"], [])
            current.append(entry["text"])
        else:
            current.append(line.strip())
    return {name: " ".join(" ".join(lines).split()) for name, lines in texts.items()}


def _args_section(lines: Iterable[str]) -> list[str]:
    section: list[str] = []
    is_inside = False
    for line in lines:
        if _SECTION.fullmatch(line):
            is_inside = line in ("Args:", "Arguments:")
        elif is_inside and line.strip():
            section.append(line)
    return section
