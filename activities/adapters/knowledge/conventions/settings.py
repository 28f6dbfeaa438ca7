"""Conventions that tools are configured by: `key = value`, a rule for each tool."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from orga.activities.adapters.knowledge.conventions.rule import Rule, rules
from orga.activities.adapters.knowledge.text_file import Unreadable
from orga.activities.adapters.toml_text import read_toml

MAX_VALUE_CHARS = 400
MAX_KEYS = 200
"""Of one tool."""
_MAX_DEPTH = 6

_PYPROJECT = ("ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pylint", "flake8", "pytest", "coverage")
_PACKAGE = ("prettier", "eslintConfig", "stylelint", "commitlint", "lint-staged", "browserslist", "jest", "scripts")
_PACKAGE_FACTS = ("type", "packageManager", "engines")


def pyproject_rules(text: str) -> Iterator[Rule]:
    """Yield what `pyproject.toml` says of Python's version and of linters, formatters, type checkers, tests."""
    whole = _toml(text)
    project = _table(whole.get("project"))
    if version := project.get("requires-python"):
        yield from rules("Python, in pyproject.toml", [f"requires-python = {_value(version)}"], "python")
    tools = _table(whole.get("tool"))
    yield from _of_tools(tools, _PYPROJECT, "pyproject.toml", "python")


def cargo_rules(text: str) -> Iterator[Rule]:
    """Yield what `Cargo.toml` says of Rust's edition and of lints."""
    whole = _toml(text)
    package = _table(whole.get("package"))
    facts = {key: package[key] for key in ("edition", "rust-version") if key in package}
    yield from _of_tool("Rust, in Cargo.toml", facts, "rust")
    workspace = _table(whole.get("workspace"))
    yield from _of_tool("lints, in Cargo.toml", _table(workspace.get("lints")) | _table(whole.get("lints")), "rust")


def package_rules(text: str) -> Iterator[Rule]:
    """Yield what `package.json` says of versions, scripts, linters and formatters."""
    whole = _json(text)
    yield from _of_tool("package, in package.json", {key: whole[key] for key in _PACKAGE_FACTS if key in whole}, "")
    yield from _of_tools(whole, _PACKAGE, "package.json", "")


def json_rules(name: str, text: str, language: str = "") -> Iterator[Rule]:
    """Yield what a tool's own JSON file says, comments and last commas borne with."""
    yield from _of_tool(name, _json(text), language)


def toml_rules(name: str, text: str, language: str = "") -> Iterator[Rule]:
    """Yield what a tool's own TOML file says."""
    yield from _of_tool(name, _toml(text), language)


def verbatim_rules(name: str, text: str, language: str = "") -> Iterator[Rule]:
    """Yield a tool's own file as it stands, comments too, which say why; empty lines are left out."""
    yield from rules(name, (line.rstrip() for line in text.splitlines() if line.strip()), language)


def _of_tools(tables: Mapping[str, Any], names: Iterable[str], file: str, language: str) -> Iterator[Rule]:
    for name in names:
        found = tables.get(name)
        table = _table(found) if isinstance(found, dict) else {} if found is None else {name: found}
        yield from _of_tool(f"{name}, in {file}", table, language)


def _of_tool(title: str, table: Mapping[str, Any], language: str) -> Iterator[Rule]:
    lines = [f"{key} = {value}" for key, value in _flat(table)]
    more = [f"[and {len(lines) - MAX_KEYS} more]"] if len(lines) > MAX_KEYS else []
    yield from rules(title, lines[:MAX_KEYS] + more, language)


def _flat(table: Mapping[str, Any], above: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value and depth < _MAX_DEPTH:
            yield from _flat(cast("dict[str, Any]", value), f"{name}.", depth + 1)
        else:
            yield name, _value(value)


def _value(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= MAX_VALUE_CHARS else f"{shown[:MAX_VALUE_CHARS]}…"


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _toml(text: str) -> dict[str, Any]:
    try:
        return read_toml(text)
    except ValueError as error:
        raise Unreadable(f"it is no TOML: {_cause(error)}") from None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_plain_json(text))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {_cause(error)}") from None
    if not isinstance(found, dict):
        raise Unreadable("it is no JSON object")
    return cast("dict[str, Any]", found)


def _cause(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def _plain_json(text: str) -> str:
    """Return JSON without the comments and last commas that tools of JavaScript allow."""
    kept: list[str] = []
    position = 0
    while position < len(text):
        length, piece = _piece(text, position)
        position += length
        if piece in {"}", "]"}:
            _drop_last_comma(kept)
        kept.append(piece)
    return "".join(kept)


def _piece(text: str, start: int) -> tuple[int, str]:
    """Return how long the next piece is, and what it stands for: a string is one, a comment stands for nothing."""
    if text[start] == '"':
        end = start + 1
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        return end + 1 - start, text[start : end + 1]
    for opened, closed in (("//", "\n"), ("/*", "*/")):
        if text.startswith(opened, start):
            end = text.find(closed, start + 2)
            return (len(text) - start, "") if end < 0 else (end + len(closed) - start, "\n")
    return 1, text[start]


def _drop_last_comma(kept: list[str]) -> None:
    while kept and not kept[-1].strip():
        kept.pop()
    if kept and kept[-1] == ",":
        kept.pop()
