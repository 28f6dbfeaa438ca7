"""The loop's own tools are listed in one table. Few files use the constants with their names."""

import ast
from pathlib import Path

import pytest

from orga.own_code import ROOT
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS, RUN_TOOL, loop_tool, tool_needing

PRODUCT = ("workflows", "activities", "client", "worker.py")


def named_in(constant: str) -> list[str]:
    """Return the product files whose code uses a constant."""
    paths = [ROOT / name for name in PRODUCT]
    files = [file for path in paths for file in ([path] if path.suffix else path.rglob("*.py"))]
    return [str(file.relative_to(ROOT)) for file in files if constant in names(file)]


def names(file: Path) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("name", LOOP_TOOLS)
def test_the_constant_of_a_tool_is_used_in_at_most_three_files(name: str) -> None:
    """These are the table, the description for models, and the implementation."""
    found = named_in(name.upper())
    assert "workflows/types/tool_calls/loop_tools.py" in found
    assert len(found) <= 3, found


def test_loop_tools_are_found_by_their_properties() -> None:
    assert RUN_TOOL == "delegate"
    assert loop_tool("delegate").is_run
    assert not loop_tool("read_file").is_run
    assert tool_needing("decisions") == "decide"
    assert tool_needing("delegates") == "delegate"
