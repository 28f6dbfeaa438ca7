"""Scripts in the documents can be imported by a test and by anything that reloads their workflows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orga.own_code import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def scripts() -> Iterator[tuple[str, str]]:
    """Yield each script with its place."""
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, found in enumerate(BLOCK.finditer(document.read_text()), start=1):
            yield f"{document.name} {number}", found[1]
    for file in sorted((ROOT / "examples").rglob("*.py")):
        yield str(file.relative_to(ROOT)), file.read_text()


SCRIPTS = dict(scripts())


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_importing_a_script_does_nothing(script: str) -> None:
    done = [each for each in ast.parse(script).body if isinstance(each, ast.Expr)]
    assert [ast.unparse(each) for each in done if isinstance(each.value, ast.Call | ast.Await)] == []


def test_the_scripts_are_found() -> None:
    assert {"embedding.md 1", "tutorial.md 1", str(Path("examples/desk/app.py"))} <= SCRIPTS.keys()
