"""Workflow code asks Temporal for the time, and for the length of the history, in one place only: `control/run`.

What follows a local activity may run at another time than its replay: so nothing else may ask, by any spelling.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orga.workflows.phases.control import run

ROOT = Path(__file__).parents[3]

ASKS_TEMPORAL = {
    "now": {"phases/control/run.py"},
    "time": {"phases/control/run.py"},
    "time_ns": {"phases/control/run.py"},
    "utcnow": set[str](),
    "today": set[str](),
    "monotonic": set[str](),
    "perf_counter": set[str](),
    "get_current_history_length": {"phases/control/run.py"},
    "get_current_history_size": {"phases/control/run.py"},
    "is_continue_as_new_suggested": {"phases/control/run.py"},
}
"""Names that ask for what differs from task to task, each with the files that may. The settings workflow is no run, and
asks before its local activity."""

MODULES = {"workflow", "datetime", "date", "time", "loop", "asyncio"}
"""Modules whose `now`, `time` and `time_ns` are forbidden. A run has its own `now`."""

ASKED_BY = {
    run.event_time.__name__: {"phases/control/run.py", "lifecycle.py", "settings_workflow.py"},
    run.live_time.__name__: {"phases/control/handlers.py", "phases/control/run.py"},
    run.workflow_task_clock.__name__: {"phases/control/lifetime.py", "phases/control/run.py"},
    run.wall_time.__name__: {"lifecycle.py", "goal.py", "session.py", "phases/control/run.py"},
    run.history_length.__name__: {"phases/control/run.py", "settings_workflow.py"},
}
"""The clock functions of those files, and the files that may use them."""

ADVANCE_CLOCK = run.ControlledRun[Any].advance_clock.__name__

SOURCES = sorted(path for path in (ROOT / "workflows").rglob("*.py") if "types" not in path.parts)


def asks(tree: ast.AST) -> Iterator[str]:
    """Yield the uses of Temporal's or the machine's time and history in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"temporalio.workflow", "time"}:
            yield from (alias.name for alias in node.names if alias.name in ASKS_TEMPORAL)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name == "time")
        elif isinstance(node, ast.Attribute) and node.attr in ASKS_TEMPORAL and _is_meant(node):
            yield node.attr


def _is_meant(node: ast.Attribute) -> bool:
    return node.attr not in {"now", "time", "time_ns"} or _root(node.value) in MODULES


def _root(node: ast.AST) -> str:
    """Return the last word before the dot: `workflow` in `workflow.now`, `loop` in `self.loop.time`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return "loop" if isinstance(node, ast.Call) else ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_allowed_files_ask_temporal_for_the_time(path: Path) -> None:
    place = str(path.relative_to(ROOT / "workflows"))
    assert [name for name in asks(ast.parse(path.read_text())) if place not in ASKS_TEMPORAL[name]] == []


@pytest.mark.parametrize(
    "source",
    [
        "from temporalio import workflow\nworkflow.now()",
        "import temporalio.workflow\ntemporalio.workflow.now()",
        "from temporalio.workflow import now as at\nat()",
        "workflow.time()",
        "workflow.time_ns()",
        "asyncio.get_running_loop().time()",
        "import time\ntime.time()",
        "from datetime import datetime\ndatetime.now()",
        "workflow.info().get_current_history_length()",
        "info = workflow.info()\ninfo.is_continue_as_new_suggested()",
    ],
)
def test_every_spelling_is_found(source: str) -> None:
    assert list(asks(ast.parse(source)))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_time_of_an_event_is_read_only_where_an_event_is_handled(path: Path) -> None:
    place = str(path.relative_to(ROOT / "workflows"))
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    imported = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in {"orga.workflows.phases.control.run"}
        for alias in node.names
    }
    assert [name for name in (imported | used) & ASKED_BY.keys() if place not in ASKED_BY[name]] == []


def calls_of(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func.attr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_a_timer_or_a_handler_moves_the_clock(path: Path) -> None:
    """`advance_clock` is called after a timer fired, in a handler, or in `wait_for_event`, and nowhere else."""
    tree = ast.parse(path.read_text())
    after_timers = [
        call
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and "TimeoutError" in ast.unparse(handler.type or ast.Constant(""))
        for call, name in calls_of(handler)
        if name == ADVANCE_CLOCK
    ]
    if path.name not in {"handlers.py", "run.py", "lifetime.py"}:
        found = [call for call, name in calls_of(tree) if name == ADVANCE_CLOCK]
        assert [call.lineno for call in found if call not in after_timers] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_end_of_an_activity_moves_the_clock(path: Path) -> None:
    """Who schedules one hands it to `Run.wait_for_event`, there or in whoever calls the function around it.

    `Run.wait_for_activity` does that, too.

    `run_agent` is for workflows of others, which have no clock of ours, and the workflow of one call has none either.
    """
    source = path.read_text()
    if path.name in {"children.py", "activity_call.py"}:
        return
    if "execute_activity(" in source or "start_child_workflow(" in source:
        assert ".wait_for_event(" in source or ".wait_for_activity(" in source
