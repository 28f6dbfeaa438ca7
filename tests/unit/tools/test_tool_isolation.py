"""Options for where a tool runs. Invalid ones are refused at configuration time."""

from pathlib import Path

import pytest

from orga.activities.adapters.tools.catalog import builtin_tools, with_options
from orga.activities.adapters.tools.python_function import PythonFunction, load_function
from orga.activities.ports import Tool
from orga.workflows.types.tool_calls.tools import MAX_LOCAL_TIMEOUT_S, ToolOptions
from tests.support.tools import blocking as blocking_tools
from tests.support.tools import sample as sample_tools
from tests.support.tools.calls import result


def configured(tool: Tool, **options: object) -> Tool:
    return with_options([tool], {tool.spec.name: ToolOptions.model_validate(options)})[0]


def sample(name: str) -> PythonFunction:
    return load_function(f"tests.support.tools.sample:{name}")


@pytest.mark.parametrize(
    ("isolation", "in_main_thread"),
    [
        pytest.param("process", "True", id="the main thread of a process"),
        pytest.param("thread", "False", id="a thread of the worker"),
        pytest.param(None, "False", id="the default"),
    ],
)
async def test_the_option_determines_where_a_function_runs(isolation: str | None, in_main_thread: str) -> None:
    options = {"isolation": isolation} if isolation else {"timeout_s": 1}
    assert await result(configured(sample("thread_name"), **options), copy="c") == f"{in_main_thread} c 0"


@pytest.mark.parametrize(("function", "arguments"), [("echo", {"text": "a"}), ("blocks_its_loop", {"seconds": 0})])
async def test_the_option_wins_over_the_decorator(function: str, arguments: dict[str, object]) -> None:
    tool = configured(load_function(f"tests.support.tools.blocking:{function}"), isolation="thread")
    assert tool.spec.options.isolation == "thread"
    assert await result(tool, **arguments) in ("a", "async")


async def test_the_other_options_are_kept() -> None:
    tool = configured(sample("weather"), isolation="process")
    assert (tool.spec.options.timeout_s, tool.spec.options.isolation, tool.spec.effect) == (5, "process", "read_only")


def test_only_python_functions_can_be_isolated(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tools\.options\.read_file\.isolation: only a Python function"):
        with_options(builtin_tools(tmp_path), {"read_file": ToolOptions(isolation="process")})


def test_a_function_that_a_process_cannot_import_is_refused_with_its_place() -> None:
    def inner() -> str:
        return ""

    with pytest.raises(ValueError, match=r"tools\.options\.inner\.isolation: a process of its own cannot import it"):
        configured(PythonFunction(inner), isolation="process")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"timeout_s": MAX_LOCAL_TIMEOUT_S}, id="exactly the limit"),
        pytest.param({}, id="no time limit of its own"),
    ],
)
def test_a_local_call_may_take_two_seconds(options: dict[str, object]) -> None:
    tool = PythonFunction(blocking_tools.crashes_once)
    assert configured(tool, execution="local", **options).spec.options.execution == "local"


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        pytest.param(blocking_tools.crashes_once, {"timeout_s": 2.001}, id="by its options"),
        pytest.param(sample_tools.weather, {}, id="by its decorator"),
    ],
)
def test_a_local_call_may_not_take_longer(tool: object, options: dict[str, object]) -> None:
    """An abort has no effect while it runs."""
    with pytest.raises(ValueError, match=r'timeout_s: .*set at most 2, or execution = "activity"'):
        configured(PythonFunction(tool), execution="local", **options)  # type: ignore[arg-type]  # pyright: ignore
