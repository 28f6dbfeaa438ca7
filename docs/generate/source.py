"""The code as griffe reads it, without running any of it."""

from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]


@cache
def module(name: str) -> griffe.Module:
    """Return a module of ours with its docstrings."""
    path = ROOT.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return griffe.visit(name, filepath=path, code=path.read_text(encoding="utf-8"))


def docstring_text(found: griffe.Object | griffe.Alias | None) -> str:
    """Return the docstring unchanged, or ""."""
    return found.docstring.value.strip() if found is not None and found.docstring is not None else ""


def in_cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
