"""Imports have one direction, checked in the syntax of every file, also for imports inside functions."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
    "api": {"types", "ports", "activities", "workflows", "client"},
    "worker": {"orga", "types", "ports", "decisions", "activities", "adapters", "phases", "workflows", "client"},
}
"""The imports that each layer may have: `types <- decisions <- phases <- workflows <- client <- worker`, and
`types <- activities (ports <- activities, adapters) <- phases`. Nobody may import the worker. `orga` is
how processes start: it imports nothing of the others, and workflow code does not know it. The public API is for others
alone."""

IN_A_DECISION = {"pydantic", "pydantic_core", "rapidfuzz", "minijinja"}
"""A decision can be understood, run and tested without knowing that Temporal exists."""

IN_THE_SANDBOX = {"temporalio", "pydantic", "pydantic_core", "rapidfuzz", "re2", "opentelemetry", "minijinja"}
"""Third parties that workflow code may know."""

ROOMS: dict[str, tuple[str, ...]] = {
    "client": (
        *("errors", "server", "config", "history", "journal", "connect", "runners", "runs"),
        *("schedules", "past", "telemetry", "workers", "policies", "proof", "testing", "console", "frontends", "cli"),
    ),
    "tests.support": (
        *("hold", "values", "parts", "knowledge", "programs", "web"),
        *("model", "tools", "runs", "mcp", "scenarios", "crash", "console", "interface", "browser"),
    ),
}
"""The parts of each package in their order: each imports only itself and those before it."""


CONTROL_TYPES = {
    *("control", "questions", "record"),
    *("names", "text", "json_text", "telemetry_names", "breakers"),
}
"""The values that the control core goes by: none of an agent."""


@dataclass(frozen=True)
class Import:
    """One imported module with its place."""

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
            package = ("orga", *file.relative_to(ROOT).parts)[: -node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            yield Import(file, node.lineno, module)
            yield from (Import(file, node.lineno, f"{module}.{alias.name}") for alias in node.names)


def layer(module: str) -> str | None:
    """Return the layer of one of our modules."""
    package, _, inside = module.partition(".")
    if package != "orga":
        return None
    match inside.split("."):
        case ["workflows", ("types" | "decisions" | "phases") as name, *_]:
            return name
        case ["workflows", _, *_]:
            return "workflows"
        case ["activities", ("ports" | "adapters") as name, *_]:
            return name
        case ["activities", _, *_]:
            return "activities"
        case [("client" | "worker") as name, *_]:
            return name
        case [""] | ["errors"] | ["ports"] | ["workflow"] | ["testing"] | ["runs"]:
            return "api"
        case _:
            return "orga"


def module_of(file: Path) -> str:
    """Return the name of the module, also of one that `orga/` contains only as a link."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    inside = parts[1:] if parts[0] == "orga" else parts
    return ".".join(("orga", *(inside[:-1] if inside[-1:] == ("__init__",) else inside)))


def violations(file: Path) -> list[str]:
    own = layer(module_of(file))
    if own is None:
        return []
    allowed = BELOW[own] | {own}
    return [found.place for found in imports(file) if (layer(found.module) or own) not in allowed]


def room(module: str) -> tuple[str, int] | None:
    """Return the package and how high in it the room of one of our modules is."""
    inside = module.removeprefix("orga.")
    for package, order in ROOMS.items():
        if inside.startswith(f"{package}."):
            name = inside.removeprefix(f"{package}.").partition(".")[0]
            return package, order.index(name)
    return None


def upward(file: Path) -> list[str]:
    """Return the imports of rooms above the one that a file is in."""
    own = room(module_of(file))
    if own is None:
        return []
    found = [(found, room(found.module)) for found in imports(file)]
    return [each.place for each, there in found if there and there[0] == own[0] and there[1] > own[1]]


def foreign(file: Path, allowed: set[str]) -> list[str]:
    known = allowed | sys.stdlib_module_names
    return [found.place for found in imports(file) if found.module.partition(".")[0] not in known | {"orga"}]


def test_imports_point_one_way() -> None:
    assert [place for file in files(*LAYERS) for place in violations(file)] == []


@pytest.mark.parametrize("package", ROOMS)
def test_every_module_has_a_place_in_the_order(package: str) -> None:
    paths = (ROOT / package.replace(".", "/")).iterdir()
    rooms = [path.stem for path in paths if not path.name.startswith("__") and path.suffix in {"", ".py"}]
    assert sorted(rooms) == sorted(ROOMS[package])


def test_modules_import_only_those_below() -> None:
    assert [place for package in ROOMS for file in files(package.replace(".", "/")) for place in upward(file)] == []


def beyond_control(found: Import) -> bool:
    """Return whether this import would make the control core depend on a workflow of ours."""
    match found.module.split("."):
        case ["orga", "workflows", "types", "tool_calls", name, *_] | ["orga", "workflows", "types", name, *_]:
            return name not in CONTROL_TYPES
        case ["orga", "workflows", "decisions" | "phases", name, *_]:
            return name != "control"
        case ["orga", "activities", name, *_]:
            return name != "instruments"
        case _:
            return False


def test_the_control_core_imports_no_workflow() -> None:
    core = files("workflows/decisions/control", "workflows/phases/control", "workflows/types/control.py")
    core += files("workflows/types/questions.py")
    assert [found.place for file in core for found in imports(file) if beyond_control(found)] == []
    agent = [found for file in files("workflows/phases/gate.py") for found in imports(file)]
    assert any(map(beyond_control, agent)), "the test would find it"


def test_nobody_imports_the_worker() -> None:
    """Only tests do, which run it."""
    found = [found for file in files("workflows", "activities", "client") for found in imports(file)]
    assert [i.place for i in found if i.module.startswith(("orga.worker", "tests"))] == []


def test_our_modules_are_imported_by_their_full_name() -> None:
    """Otherwise they would be loaded twice, and a project's own `worker.py` could be taken for ours."""
    found = [found for file in files(*LAYERS, "tests", "bench") for found in imports(file)]
    bare = {"workflows", "activities", "client", "worker"}
    assert [i.place for i in found if i.module.partition(".")[0] in bare] == []


def test_workflow_code_imports_only_sandbox_modules() -> None:
    places = [place for file in files("workflows") for place in foreign(file, IN_THE_SANDBOX)]
    assert places == []


def test_decisions_do_not_import_temporal() -> None:
    assert [place for file in files("workflows/decisions") for place in foreign(file, IN_A_DECISION)] == []


def test_every_package_file_is_empty() -> None:
    """The only exception is the package itself, which is the public API."""
    packages = [file for file in files(*LAYERS, "tests") if file.name == "__init__.py"]
    assert packages
    assert [str(file.relative_to(ROOT)) for file in packages if file.read_text()] == ["orga/__init__.py"]


IMPORTS_OF_LAYERS = {
    "a type that imports a decision": ("workflows/types/a.py", "import orga.workflows.decisions.b", True),
    "a decision that imports a phase": ("workflows/decisions/a.py", "from orga.workflows.phases import b", True),
    "a decision that imports the loop": ("workflows/decisions/a.py", "from orga.workflows.agent import A", True),
    "a workflow that imports the client": ("workflows/agent.py", "from orga.client.runs import b", True),
    "an activity that imports an adapter": ("activities/a.py", "from orga.activities.adapters import http", True),
    "a port that imports an activity": ("activities/ports.py", "from orga.activities.reason import R", True),
    "inside a function": ("activities/adapters/a.py", "def f():\n    import orga.client.history.events", True),
    "an activity that imports a decision": ("activities/a.py", "from orga.workflows.decisions import window", True),
    "a relative import": ("activities/adapters/a.py", "from ...client import b", True),
    "a client that imports the worker": ("client/a.py", "import orga.worker", True),
    "a phase that imports the loop": ("workflows/phases/a.py", "from orga.workflows import agent", True),
    "a phase that imports a decision": ("workflows/phases/a.py", "from orga.workflows.decisions import b", False),
    "an adapter of a port": ("activities/adapters/a.py", "from orga.activities.ports import Tool", False),
    "a client that starts a workflow": ("client/a.py", "from orga.workflows.agent import A", False),
    "the worker that imports everything": ("worker.py", "from orga.activities.adapters import a", False),
}


@pytest.mark.parametrize(("path", "source", "expected"), IMPORTS_OF_LAYERS.values(), ids=IMPORTS_OF_LAYERS)
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


IMPORTS_OF_ROOMS = {
    "a server that imports config": ("client/server/a.py", "from orga.client.config import sections", True),
    "a module that imports a room": ("client/errors.py", "from orga.client.server.home import h", True),
    "a folder in a room": ("client/config/trust/a.py", "import orga.client.runs.ids", True),
    "a room by its package": ("client/past/a.py", "from orga.client import telemetry", True),
    "a relative import": ("client/proof/a.py", "from ..cli import main", True),
    "a support module": ("tests/support/values/a.py", "from tests.support.runs import loop", True),
    "a command that audits": ("client/cli/a.py", "from orga.client.proof.audit import b", False),
    "a room that imports itself": ("client/past/a.py", "from orga.client.past.fork import b", False),
    "another package's room": ("tests/support/runs/a.py", "from orga.client.cli.main import b", False),
}


@pytest.mark.parametrize(("path", "source", "expected"), IMPORTS_OF_ROOMS.values(), ids=IMPORTS_OF_ROOMS)
def test_an_upward_import_is_found(
    path: str, source: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    assert bool(upward(file)) is expected


def test_a_third_party_import_is_reported_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "workflows.py"
    file.write_text("import asyncio\nimport pydantic\nimport httpx\n")
    assert foreign(file, IN_THE_SANDBOX) == ["workflows.py:3 imports httpx"]
