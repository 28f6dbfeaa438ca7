"""The corpora of attacks: cases with their sources, as test parameters."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "corpora"

Case = dict[str, Any]


def corpus(name: str) -> dict[str, list[Case]]:
    """Return the lists of cases of one file, by the list's name."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def cases(name: str, part: str = "cases") -> list[Any]:
    """Return one list of cases as parameters."""
    return [pytest.param(case, id=case["id"]) for case in corpus(name)[part]]


def filled(value: str, **names: str) -> str:
    """Return a value of a case with its `{names}` filled in. Other braces stay."""
    for name, text in {"half": "\ud800", "long": "x" * 300, **names}.items():
        value = value.replace(f"{{{name}}}", text)
    return value
