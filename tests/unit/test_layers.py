"""Imports point one way: by the syntax of every file, also for imports inside functions."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("orga", "workflows", "activities", "client", "worker.py")

BELOW: dict[str, set[str]] = {
    "orga": set(),
    "types": set(),
    "ports": {"types"},
    "decisions": {"types"},
    "activities": {"types", "ports"},
    "adapters": {"types", "ports", "activities", "orga"},
    "phases": {"types", "ports", "decisions", "activities"},
    "workflows": {"types", "decisions", "phases", "ports", "activities"},
    "client": {"orga", "types", "ports", "decisions", "activities", "adapters", "phases", "workflows"},
    "worker": {"orga", "types", "ports", "decisions", "activities", "adapters", "phases", "workflows", "client"},
}
"""What each layer may import beside itself: `types <- decisions <- phases <- workflows <- client <- worker`, and
`types <- activities (ports <- activities, adapters) <- phases`. The worker alone may be imported by nobody. `orga` is
how processes start: it imports nothing of the others, and workflow code does not know it."""

IN_A_DECISION = {"pydantic", "pydantic_core", "rapidfuzz", "workflows"}
"""A decision can be understood, run and tested without knowing that Temporal exists."""

IN_THE_SANDBOX = {"temporalio", "pydantic", "pydantic_core", "rapidfuzz", "re2", "opentelemetry", "workflows"}
"""Third parties that workflow code may know."""


@dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    file: Path
    line: int
    module: str

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def files(*parts: str) -> list[Path]:
    """Return the Python files under these paths."""
    paths = [ROOT / part for part in parts]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def imports(file: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.relative_to(ROOT).with_suffix("").parts[: -node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            yield Import(file, node.lineno, module)
            yield from (Import(file, node.lineno, f"{module}.{alias.name}") for alias in node.names)


def layer(module: str) -> str | None:
    """Return the layer of one of our modules."""
    match module.split("."):
        case ["workflows", ("types" | "decisions" | "phases") as name, *_]:
            return name
        case ["workflows", _, *_]:
            return "workflows"
        case ["activities", ("ports" | "adapters") as name, *_]:
            return name
        case ["activities", _, *_]:
            return "activities"
        case [("client" | "worker" | "orga") as name, *_]:
            return name
        case _:
            return None


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def violations(file: Path) -> list[str]:
    own = layer(module_of(file))
    if own is None:
        return []
    allowed = BELOW[own] | {own}
    return [found.place for found in imports(file) if (layer(found.module) or own) not in allowed]


def foreign(file: Path, allowed: set[str]) -> list[str]:
    known = allowed | sys.stdlib_module_names
    return [found.place for found in imports(file) if found.module.partition(".")[0] not in known]


def test_imports_point_one_way() -> None:
    assert [place for file in files(*LAYERS) for place in violations(file)] == []


def test_nobody_imports_the_worker() -> None:
    """Except tests, which run it."""
    found = [found for file in files("workflows", "activities", "client") for found in imports(file)]
    assert [i.place for i in found if i.module.partition(".")[0] in {"worker", "tests"}] == []


def test_workflow_code_knows_only_what_the_sandbox_can_hold() -> None:
    places = [place for file in files("workflows") for place in foreign(file, IN_THE_SANDBOX | {"activities"})]
    assert places == []


def test_decisions_do_not_know_temporal() -> None:
    assert [place for file in files("workflows/decisions") for place in foreign(file, IN_A_DECISION)] == []


def test_every_package_file_is_empty() -> None:
    packages = [file for file in files(*LAYERS, "tests") if file.name == "__init__.py"]
    assert packages
    assert [str(file.relative_to(ROOT)) for file in packages if file.read_text()] == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        pytest.param("workflows/types/a.py", "import workflows.decisions.b", True, id="a type that knows a decision"),
        pytest.param(
            "workflows/decisions/a.py", "from workflows.phases import b", True, id="a decision that knows a phase"
        ),
        pytest.param(
            "workflows/decisions/a.py", "from workflows.agent import A", True, id="a decision that knows the loop"
        ),
        pytest.param("workflows/agent.py", "from client.runs import b", True, id="a workflow that knows the client"),
        pytest.param(
            "activities/a.py", "from activities.adapters import http", True, id="an activity that knows an adapter"
        ),
        pytest.param(
            "activities/ports.py", "from activities.reason import R", True, id="a port that knows an activity"
        ),
        pytest.param("activities/adapters/a.py", "def f():\n    import client.history", True, id="inside a function"),
        pytest.param("activities/a.py", "from workflows.decisions import window", True, id="an activity that decides"),
        pytest.param("activities/adapters/a.py", "from ...client import b", True, id="a relative import"),
        pytest.param("client/a.py", "import worker", True, id="a client that knows the worker"),
        pytest.param("workflows/phases/a.py", "from workflows import agent", True, id="a phase that knows the loop"),
        pytest.param("workflows/phases/a.py", "from workflows.decisions import b", False, id="a phase that decides"),
        pytest.param("activities/adapters/a.py", "from activities.ports import Tool", False, id="an adapter of a port"),
        pytest.param("client/a.py", "from workflows.agent import A", False, id="a client that starts a workflow"),
        pytest.param("worker.py", "from activities.adapters import a", False, id="the worker that knows all"),
    ],
)
def test_a_violation_is_found(
    path: str, source: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    found = violations(file)
    assert bool(found) is expected
    assert all(place.startswith(f"{path}:") for place in found)


def test_a_foreign_import_is_found_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "workflows.py"
    file.write_text("import asyncio\nimport pydantic\nimport httpx\n")
    assert foreign(file, IN_THE_SANDBOX) == ["workflows.py:3 imports httpx"]
