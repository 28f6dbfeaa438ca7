"""The console shows a goal's plan and memory, and the conversation, from recorded histories."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orga.client.console import model_view, snapshots
from orga.client.console.doors import Visitor
from orga.client.console.routes import ApiRoute, Call, plain
from orga.workflows.types.tool_calls.delegation import Child
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.parts.served_histories import HistoryClient

ROUTES: dict[str, ApiRoute[Any]] = {route.path.rpartition("/")[2]: route for route in model_view.ROUTES}


async def answered(path: str, *names: str, **given: Any) -> dict[str, Any]:
    segments = [history_in(each) for name in names for each in HISTORIES if each.stem == name]
    client = HistoryClient(*segments)
    request = cast("Any", SimpleNamespace(path_params={"id": client.workflow_id}))
    route = ROUTES[path]
    console = cast("Any", SimpleNamespace(client=client))
    run = await client.get_workflow_handle(client.workflow_id).describe()
    return plain(await route.answer(Call(console, Visitor("ann"), route.takes(**given), request, run)))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("route", ROUTES)
async def test_each_recorded_run_can_be_shown(route: str, path: Any) -> None:
    assert isinstance((await answered(route, path.stem))["items"], (list, tuple))


async def test_versions_of_a_plan_name_what_changed() -> None:
    versions = (await answered("plans", "pursued"))["items"]
    assert [(each["version"], each["iteration"], each["by"]) for each in versions] == [
        (1, 2, "model"),
        (2, 5, "model"),
        (3, 12, "model"),
    ]
    first, second, _ = versions
    ids = [{step["id"] for step in each["steps"]} for each in versions]
    assert set(first["added"]) == ids[0]
    assert (set(second["added"]), set(second["dropped"])) == (ids[1] - ids[0], ids[0] - ids[1])
    assert second["added"]


async def test_a_step_that_a_person_has_overridden_is_a_version_of_its_own() -> None:
    versions = (await answered("plans", "overridden"))["items"]
    [overridden] = [each for each in versions if each["by"] == "person"]
    assert overridden["changed"]
    assert not overridden["added"]


async def test_a_pipeline_is_the_first_version_of_its_plan() -> None:
    versions = (await answered("plans", "piped"))["items"]
    assert (versions[0]["by"], versions[0]["iteration"]) == ("pipeline", 0)


async def test_versions_of_the_memory_name_what_changed() -> None:
    versions = (await answered("memory", "asked-by-templates"))["items"]
    _, long, short = versions
    assert long["memory"].startswith("the year is not known; the year")
    assert (short["iteration"], short["memory"]) == (8, "year unknown")
    assert short["added"] == ["year unknown"]
    assert short["removed"] == long["added"] != []


async def test_the_conversation_is_that_of_the_latest_model_call_and_its_reply() -> None:
    found = await answered("conversation", "tools-and-a-denial")
    roles = [message["role"] for message in found["items"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert found["total"] == len(roles)
    assert found["items"][2]["calls"][0]["name"] == "look"
    assert all(message["at"] for message in found["items"][1:])
    part = await answered("conversation", "tools-and-a-denial", offset=2, limit=1)
    assert (part["items"], part["total"]) == ([found["items"][2]], found["total"])


@pytest.mark.parametrize(
    ("name", "how", "ranges"),
    [
        ("masked", ["observation_masking", "observation_masking"], [(1, 3), (4, 5)]),
        ("summarised", ["anchored_summary"], [(1, 4)]),
    ],
)
async def test_messages_that_are_left_out_have_their_iterations_and_the_reason(
    name: str, how: list[str], ranges: list[tuple[int, int]]
) -> None:
    found = await answered("conversation", name)
    assert [each["how"] for each in found["left_out"]] == how
    assert [(each["from"], each["to"]) for each in found["left_out"]] == ranges
    assert all("token budget" in each["why"] for each in found["left_out"])


async def test_messages_of_earlier_segments_have_no_time() -> None:
    found = await answered("conversation", "rolled-over-1", "rolled-over-2", "rolled-over-3")
    assert [message["role"] for message in found["items"]] == [
        "system",
        "user",
        *["assistant", "tool"] * 6,
        "assistant",
    ]
    assert [message["at"] is None for message in found["items"]] == [True] * 14 + [False]


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        pytest.param("run.2.1", {"b": "run.2.1"}, id="the call of a step"),
        pytest.param("run.2.1.f0", {}, id="a fallback"),
        pytest.param("run.2.9", {}, id="no step"),
        pytest.param("run-without-a-place", {}, id="no call"),
    ],
)
def test_a_live_delegate_belongs_to_the_step_whose_call_it_carries_out(child: str, expected: dict[str, str]) -> None:
    steps = [{"id": step, "status": "open", "skill": "mate"} for step in ("a", "b")]
    assert snapshots._delegates_by_step(steps, [Child(workflow_id=child, agent="mate", task="")]) == expected
