"""The catalog of tools and the built-in tools."""

import re
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.adapters.tools.activity_tool import DeferredTool
from orga.activities.adapters.tools.catalog import ToolCatalog, builtin_tools, with_options
from orga.activities.adapters.tools.python_function import load_function
from orga.client.config.sections import OrgaConfig
from orga.client.workers.tool_sources import worker_tools
from orga.testing import FakeTool
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Deferral, ToolOptions
from tests.support.tools.calls import result

EFFECTS = {
    "list_files": "read_only",
    "search_text": "read_only",
    "read_file": "read_only",
    "write_file": "idempotent",
    "edit_file": "idempotent",
    "fetch_url": "read_only",
    "read_issue": "read_only",
    "read_pull_request": "read_only",
    "run_command": "irreversible",
}


def test_built_in_tools_have_these_effects(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path, commands=["git"])
    assert {tool.spec.name: tool.spec.effect for tool in tools} == EFFECTS


def test_without_commands_there_is_no_run_command(tmp_path: Path) -> None:
    assert "run_command" not in ToolCatalog(builtin_tools(tmp_path))


def test_every_definition_is_valid(tmp_path: Path) -> None:
    for tool in builtin_tools(tmp_path, commands=["git"]):
        spec = tool.spec
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec.name)
        assert spec.description
        assert spec.parameters["type"] == "object"
        assert spec.parameters["additionalProperties"] is False
        assert spec.main_argument in spec.parameters.get("required", []) or spec.name == "list_files"
        assert argument_errors(spec.parameters, {"nonsense": 1}), "schema is valid and closed"


def test_a_catalog_finds_tools_by_name(tmp_path: Path) -> None:
    catalog = ToolCatalog(builtin_tools(tmp_path))
    assert catalog["read_file"].spec.name == "read_file"
    assert "nothing" not in catalog
    assert list(catalog) == [name for name in EFFECTS if name != "run_command"]
    assert len(catalog) == 8


def test_two_tools_with_the_same_name_are_refused(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    with pytest.raises(ValueError, match="two tools are called 'list_files'"):
        ToolCatalog([*tools, *builtin_tools(tmp_path)])


def test_options_override_those_of_the_tool(tmp_path: Path) -> None:
    options = {"run_command": ToolOptions(max_attempts=1), "read_file": ToolOptions(execution="local")}
    catalog = ToolCatalog(with_options(builtin_tools(tmp_path, commands=["git"]), options))
    assert catalog["run_command"].spec.options == ToolOptions(max_attempts=1, timeout_s=630, verified=True)
    assert catalog["read_file"].spec.options.execution == "local"
    assert catalog["list_files"].spec.options == ToolOptions(verified=True)


def test_the_configured_effect_wins(tmp_path: Path) -> None:
    options = {"run_command": ToolOptions(effect="idempotent", max_attempts=3)}
    spec = ToolCatalog(with_options(builtin_tools(tmp_path, commands=["git"]), options))["run_command"].spec
    assert (spec.effect, spec.options.max_attempts) == ("idempotent", 3)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        pytest.param(ToolOptions(max_attempts=2), "run_command.max_attempts", id="retries of an irreversible tool"),
        pytest.param(ToolOptions(execution="local"), "run_command.execution", id="an irreversible local activity"),
    ],
)
def test_options_that_contradict_the_effect_are_refused(tmp_path: Path, options: ToolOptions, place: str) -> None:
    with pytest.raises(ValueError, match=f"tools.options.{place}"):
        with_options(builtin_tools(tmp_path, commands=["git"]), {"run_command": options})


async def test_a_tool_with_options_is_called_as_before(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    catalog = ToolCatalog(with_options(builtin_tools(tmp_path), {"list_files": ToolOptions(timeout_s=3)}))
    assert await result(catalog["list_files"]) == "a"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("raed_file", "did you mean 'read_file'"),
        ("fetch", "did you mean 'fetch_url'"),
        ("zzz", "there are: edit_file, fetch_url"),
    ],
)
def test_options_for_an_unknown_tool_suggest_the_nearest_name(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        with_options(builtin_tools(tmp_path), {name: ToolOptions()})


def test_functions_and_built_in_tools_share_a_catalog(tmp_path: Path) -> None:
    function = load_function("tests.support.tools.sample:weather")
    assert ToolCatalog([*builtin_tools(tmp_path), function])["weather"] is function


def test_built_in_tools_are_verified_unless_configured_otherwise(tmp_path: Path) -> None:
    tools = with_options(builtin_tools(tmp_path, commands=["git"]), {"write_file": ToolOptions(verified=False)})
    assert [tool.spec.name for tool in tools if not tool.spec.options.verified] == ["write_file"]


@pytest.mark.parametrize("name", ["delegate", "terminate", "final_answer"])
def test_no_tool_can_use_a_name_of_the_loop(name: str) -> None:
    with pytest.raises(ValueError, match=f"a tool is called '{name}', a name that belongs to the loop; rename it"):
        ToolCatalog([FakeTool(name)])


def test_nested_options_keep_their_type(tmp_path: Path) -> None:
    recovery = Recovery(strategy="fallback", alternatives=("list_files",))
    (tool,) = with_options([FakeTool("read")], {"read": ToolOptions(recovery=recovery)})
    assert tool.spec.options.recovery == recovery


def test_an_activity_of_another_worker_is_a_tool(tmp_path: Path) -> None:
    config = OrgaConfig.model_validate(
        {
            "tools": {
                "activities": {"refund": {"task_queue": "payments", "activity": "RefundOrder", "description": "Pay."}}
            }
        }
    )
    [refund] = [each for each in worker_tools(config, tmp_path, {}) if each.tool.spec.name == "refund"]
    assert (refund.source, refund.tool.spec.effect) == ("activity RefundOrder on queue payments", "irreversible")
    assert refund.tool.spec.parameters["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "settings", "reported"),
    [
        ("refund", {}, "task_queue"),
        ("refund", {"task_queue": "q", "effect": "none"}, "effect"),
        ("refund", {"task_queue": "q", "parameters": {"type": 7}}, "tools.activities.refund.parameters"),
        ("read_file", {"task_queue": "q"}, "two tools are called 'read_file'"),
        ("a b", {"task_queue": "q"}, "tools.activities"),
    ],
)
def test_an_activity_that_is_no_tool_is_refused(
    tmp_path: Path, name: str, settings: dict[str, Any], reported: str
) -> None:
    def catalog() -> ToolCatalog:
        config = OrgaConfig.model_validate({"tools": {"activities": {name: settings}}})
        return ToolCatalog(each.tool for each in worker_tools(config, tmp_path, {}))

    with pytest.raises(ValueError, match=reported):
        catalog()


def deferred_catalog(tmp_path: Path, tools: dict[str, Any]) -> ToolCatalog:
    config = OrgaConfig.model_validate({"tools": tools})
    return ToolCatalog(each.tool for each in worker_tools(config, tmp_path, {}))


def test_a_deferred_tool_takes_what_is_not_set_from_its_start(tmp_path: Path) -> None:
    tools = {
        "activities": {"order": {"task_queue": "q", "description": "Order.", "effect": "idempotent"}},
        "deferred": {"check": {"start": "order", "expires_s": 60}, "ask": {"output_schema": {"type": "integer"}}},
        "options": {"order": {"timeout_s": 7, "task_queue": "others"}, "check": {"max_result_bytes": 300}},
    }
    found = deferred_catalog(tmp_path, tools)
    check, ask = found["check"].spec, found["ask"].spec
    assert (check.description, check.effect) == ("Order.", "idempotent")
    assert check.parameters == found["order"].spec.parameters
    assert (check.options.timeout_s, check.options.task_queue, check.max_result_bytes) == (7, None, 300)
    assert check.deferred == Deferral(expires_s=60, has_start=True)
    assert ask.effect == "irreversible"
    assert ask.deferred == Deferral(expires_s=604_800, output_schema={"type": "integer"})


@pytest.mark.parametrize(
    ("deferred", "reported"),
    [
        ({"check": {"start": "chek"}}, r"tools\.deferred\.check\.start: there is no tool 'chek'"),
        ({"check": {"start": "check"}}, r"tools\.deferred\.check\.start: there is no tool 'check'"),
        ({"check": {"output_schema": {"type": 7}}}, r"tools\.deferred\.check: output_schema: "),
        ({"check": {"parameters": {"type": 7}}}, r"tools\.deferred\.check: parameters: "),
        ({"check": {"expires_s": 0}}, "expires_s"),
        ({"check": {"effect": "none"}}, "effect"),
        ({"read_file": {}}, "two tools are called 'read_file'"),
        ({"ask_user": {}}, "belongs to the loop"),
    ],
)
def test_a_deferred_tool_that_cannot_be_used_is_refused(
    tmp_path: Path, deferred: dict[str, Any], reported: str
) -> None:
    with pytest.raises(ValueError, match=reported):
        deferred_catalog(tmp_path, {"deferred": deferred})


def test_a_function_can_start_the_work_of_a_deferred_tool() -> None:
    def order(person: str) -> str:
        """Order a check."""
        return person

    spec = DeferredTool("check", start=order).spec
    assert (spec.description, list(spec.parameters["properties"])) == ("Order a check.", ["person"])
    with pytest.raises(ValueError, match="check: expires_s must be between"):
        DeferredTool("check", expires_s=0)
