"""The comparison with other frameworks states what the benchmark installs and runs."""

import re

import pytest

from bench.rivals.sides import AGENTS, REQUIREMENTS, ROOT, SIDES, Side

GUIDE = (ROOT / "docs" / "comparison.md").read_text()
NAMES = [side.name for side in SIDES]


@pytest.mark.parametrize("side", SIDES[1:], ids=NAMES[1:])
def test_the_stated_versions_are_the_installed_ones(side: Side) -> None:
    """After a version changes, measure again."""
    pinned = re.findall(r"^([\w.-]+)(?:\[.*?\])?==(\S+)$", (REQUIREMENTS / f"{side.name}.txt").read_text(), re.M)
    assert {package for package, _ in pinned} == set(side.packages)
    assert [f"{package} {version}" for package, version in pinned if f"{package} {version}" not in GUIDE] == []


@pytest.mark.parametrize("side", SIDES, ids=NAMES)
def test_the_stated_line_counts_are_those_of_the_programs(side: Side) -> None:
    row = next(line for line in GUIDE.splitlines() if line.startswith("| lines of the program"))
    cells = [cell.split()[0] for cell in row.split("|")[2:-1]]
    assert int(cells[NAMES.index(side.name)]) == side.lines()


@pytest.mark.parametrize("side", SIDES, ids=NAMES)
def test_each_framework_runs_the_same_task(side: Side) -> None:
    program, model = ((AGENTS / f"{side.name}_{part}.py").read_text() for part in ("agent", "model"))
    assert "pay_now(number)" in program
    assert "next_payment(" in model


def test_no_compared_framework_is_among_our_packages() -> None:
    """The tests install the optional extra `providers`, whose models pydantic-ai asks."""
    of_tests, ours = ((ROOT / f"requirements{name}.lock").read_text() for name in ("", "-worker"))
    assert not re.search(r"^(langgraph|langchain|pydantic-ai|openai-agents)\S*==", ours, re.M)
    assert not re.search(r"^(langgraph|langchain|pydantic-ai(?!-slim)|openai-agents)\S*==", of_tests, re.M)
