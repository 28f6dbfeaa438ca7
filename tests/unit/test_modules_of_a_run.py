"""What the sandbox of one run imports: its own copy of all workflow code, and no more of it than its kind needs."""

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from temporalio import workflow
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError
from temporalio.worker.workflow_sandbox._runner import _Instance

from orga.client.runners import sandbox
from orga.client.runners.sandbox import PASSED_THROUGH, workflow_runner
from orga.workflows.agent import AgentWorkflow
from orga.workflows.goal import GoalWorkflow

ROOT = Path(__file__).parents[2]
MOST_OF_AN_AGENT = 61
"""Modules of ours in the sandbox of an agent's run: its start pays for each."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[_Instance]:
    """Every sandbox that is made, as it is made."""
    instances: list[_Instance] = []
    create = _Instance._create_instance

    def noting(self: _Instance) -> None:
        instances.append(self)
        create(self)

    monkeypatch.setattr(_Instance, "_create_instance", noting)
    return instances


def prepare(runner: WorkflowRunner, kind: type[Any]) -> None:
    runner.prepare_workflow(cast(Any, workflow)._Definition.must_from_class(kind))


def ours(instance: _Instance) -> dict[str, ModuleType]:
    """Return what a run has of our modules for itself."""
    modules = instance.importer.new_modules
    return {
        name: module
        for name, module in modules.items()
        if name.partition(".")[0] == "orga" and not instance.importer.module_configured_passthrough(name)
    }


async def test_an_agents_run_has_few_modules_and_none_of_goals(made: list[_Instance]) -> None:
    prepare(workflow_runner(), AgentWorkflow)
    names = set(ours(made[0]))
    assert len(names) <= MOST_OF_AN_AGENT
    assert not {name for name in names if "goal" in name}


async def test_a_goals_run_has_no_agent(made: list[_Instance]) -> None:
    prepare(workflow_runner(), GoalWorkflow)
    assert "orga.workflows.goal" in ours(made[0])
    assert "orga.workflows.agent" not in ours(made[0])


@pytest.mark.parametrize("folder", ["decisions", "phases"])
def test_no_class_that_is_slow_to_make_is_made_anew_for_each_run(folder: str) -> None:
    """A named tuple takes 0.3 ms, a dataclass or a model more: `Value` does there, or a record of `types`."""
    files = [*(ROOT / "workflows" / folder).rglob("*.py"), *(ROOT / "workflows").glob("*.py")]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    made_of = {each.name: {*map(ast.unparse, (*each.bases, *each.decorator_list))} for each in classes}
    slow = {"NamedTuple", "BaseModel", "Record", "Border", "Enum", "StrEnum", "TypedDict", "dataclass"}
    assert {name: of for name, of in made_of.items() if {one.partition("(")[0] for one in of} & slow} == {}
    assert any("Value" in of for of in made_of.values())


@pytest.mark.parametrize("kind", [AgentWorkflow, GoalWorkflow])
async def test_no_run_shares_a_module_of_workflow_code_with_another(made: list[_Instance], kind: type[Any]) -> None:
    runner = workflow_runner()
    prepare(runner, kind)
    prepare(runner, kind)
    one, other = map(ours, made)
    assert one.keys() == other.keys()
    assert {"orga.workflows.decisions.observe", "orga.workflows.phases.gate"} <= one.keys()
    for name, module in one.items():
        assert module is not other[name]
        mutable = {
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", None) == name and vars(other[name])[key] is value
        }
        assert not mutable, f"{name} shares {mutable}"


@pytest.mark.parametrize("kind", [AgentWorkflow, GoalWorkflow])
async def test_a_run_has_the_modules_that_the_sdk_alone_would_give_it(
    made: list[_Instance], kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own importer, which another version of it is left to, brings the same, from the same places."""
    prepare(workflow_runner(), kind)
    monkeypatch.setattr(sandbox, "knows_sdk", lambda: False)
    prepare(workflow_runner(), kind)
    light, sdk = made
    assert type(light) is not _Instance
    assert type(sdk) is _Instance
    assert ours(light).keys() == ours(sdk).keys()
    passed = {name for name in light.importer.new_modules if name.startswith(PASSED_THROUGH)}
    assert passed
    for name in passed & sdk.importer.new_modules.keys():
        assert light.importer.new_modules[name] is sdk.importer.new_modules[name]
    for name, module in ours(light).items():
        assert _origin(module) == _origin(ours(sdk)[name])
        assert vars(module).keys() == vars(ours(sdk)[name]).keys() - {"__cached__"}


def _origin(module: ModuleType) -> tuple[Any, ...]:
    spec = module.__spec__
    assert spec is not None
    return spec.name, spec.origin, spec.parent, module.__package__, getattr(module, "__path__", None), spec.loader


def run_in(instance: _Instance, code: str) -> dict[str, Any]:
    instance.importer.restriction_context.is_runtime = True
    instance._run_code(f"with __temporal_importer.applied():\n  {code}\n", __temporal_importer=instance.importer)
    return instance.globals_and_locals


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        pytest.param("from orga.workflows import nothing", ImportError, "nothing", id="no such name"),
        pytest.param("import orga.workflows.nothing", ModuleNotFoundError, "nothing", id="no such module"),
        pytest.param("from orga.workflows.decisions.observe import no", ImportError, "no", id="no such function"),
        pytest.param(
            "from datetime import datetime; datetime.now()", RestrictedWorkflowAccessError, "now", id="the wall clock"
        ),
        pytest.param("import os; os.getcwd()", RestrictedWorkflowAccessError, "os", id="the machine"),
        pytest.param("open('/dev/null')", RestrictedWorkflowAccessError, "open", id="a file"),
    ],
)
async def test_what_is_missing_or_restricted_stays_so(
    made: list[_Instance], code: str, error: type[Exception], said: str
) -> None:
    prepare(workflow_runner(), AgentWorkflow)
    with pytest.raises(error, match=said):
        run_in(made[0], code)


async def test_what_is_restricted_is_still_of_its_class(made: list[_Instance]) -> None:
    prepare(workflow_runner(), AgentWorkflow)
    given = run_in(
        made[0],
        "import datetime, temporalio.workflow as w; is_one = isinstance(datetime.timedelta(1), datetime.timedelta); "
        "is_sub = issubclass(datetime.datetime, datetime.date); is_none = isinstance(1, datetime.date)",
    )
    assert (given["is_one"], given["is_sub"], given["is_none"]) == (True, True, False)


async def test_a_name_of_the_public_api_is_found_by_a_run(made: list[_Instance]) -> None:
    prepare(workflow_runner(), AgentWorkflow)
    given = run_in(made[0], "from orga import AgentInput, LoopConfig; import orga.workflows.types.input as there")
    assert given["AgentInput"] is given["there"].AgentInput


async def test_a_module_that_fails_is_not_left_half_made(
    made: list[_Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(workflow_runner(), AgentWorkflow)
    instance, name = made[0], "orga.workflows.decisions.recount"
    assert name not in ours(instance)
    loader = sandbox.pin().loader(name)
    assert loader is not None
    monkeypatch.setattr(loader, "_code", compile("before = 1\n1 / 0", name, "exec"))
    with pytest.raises(ZeroDivisionError):
        run_in(instance, f"import {name}")
    assert name not in instance.importer.new_modules


@pytest.mark.parametrize("kind", [AgentWorkflow, GoalWorkflow])
async def test_a_run_has_the_workers_handlers_with_functions_of_its_own(made: list[_Instance], kind: type[Any]) -> None:
    prepare(workflow_runner(), kind)
    known = cast(Any, workflow)._Definition.must_from_class(kind)
    modules = ours(made[0])
    own = cast(Any, workflow)._Definition.must_from_class(vars(modules[kind.__module__])[kind.__name__])
    for handlers in ("signals", "queries", "updates"):
        theirs, its = getattr(known, handlers), getattr(own, handlers)
        assert its.keys() == theirs.keys() != set()
        for name, handler in its.items():
            functions = [handler.fn, handler.validator] if getattr(handler, "validator", None) else [handler.fn]
            assert all(each.__globals__ is vars(modules[each.__module__]) for each in functions)
            assert vars(handler) | {"fn": 0, "validator": 0} == vars(theirs[name]) | {"fn": 0, "validator": 0}
    assert all(each.validator is not None for each in own.updates.values())


async def test_a_run_has_restricted_builtins_in_any_thread(made: list[_Instance]) -> None:
    """Python's own are restricted by thread, while the sandbox is entered."""
    prepare(workflow_runner(), AgentWorkflow)
    made[0].importer.restriction_context.is_runtime = True
    with pytest.raises(RestrictedWorkflowAccessError, match="open"):
        eval("open('/dev/null')", vars(ours(made[0])["orga.workflows.decisions.observe"]))


async def test_what_the_worker_has_anew_is_passed_through_anew(
    made: list[_Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, name = workflow_runner(), "orga.workflows.types.usage"
    prepare(runner, AgentWorkflow)
    monkeypatch.setitem(sys.modules, name, another := ModuleType(name))
    vars(another).update(vars(made[0].importer.new_modules[name]))
    prepare(runner, AgentWorkflow)
    assert made[1].importer.new_modules[name] is another
