"""Settings at run time: saved in a workflow, used by runs that start later, and never an obstacle to a start."""

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.activities.ports import ModelRequest
from orga.client.cli.workbench.doctor import settings_check
from orga.client.config.sections import OrgaConfig
from orga.client.console.doors import Doors, Visitor
from orga.client.console.routes import API
from orga.client.errors import InvalidSettings, NoAnswer, StaleSettings
from orga.client.runs.settings import read_settings, save_settings, settings_versions
from orga.client.schedules.create import create_schedule
from orga.client.server.pollers import may_be_polled
from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import SETTINGS_WORKFLOW
from orga.workflows.types.settings import SETTINGS_MEMO, SettingsState, settings_id
from tests.support.console import OWNER, a_console
from tests.support.hold import wait_until
from tests.support.runs.loop import Ran, histories_of
from tests.support.runs.questions import send_update
from tests.support.runs.settings import Desk, a_desk
from tests.support.runs.versions import a_deployment, builds_of

PLANNING = "Be brief: {{ goal }} by\n{{ skills }}\nas {{ answer_form }}"
OWN, NEW = "Say what you know.", "Say it in verse."
CONFIG = OrgaConfig.model_validate({"agents": {"default": {"instructions": OWN, "tools": ["list_files"]}}})
INSTRUCTIONS, MAX = "agents.default.instructions", "agents.default.config.max_iterations"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([answers("done")], repeats=True)


@pytest.fixture
async def desk(client: Client, model: ScriptedModel, tmp_path: Path) -> AsyncGenerator[Desk]:
    async with a_desk(client, model, tmp_path, CONFIG) as desk:
        yield desk


def prepared(ran: Ran) -> dict[str, Any]:
    """Return the data of the event `Prepared`."""
    return next(entry.data for entry in ran.journal if entry.event == "Prepared")


def has_new_instructions(request: ModelRequest) -> bool:
    """Return whether the model got the new instructions."""
    return NEW in "\n".join(request.system)


async def test_later_runs_use_saved_settings_and_running_ones_keep_theirs(client: Client, tmp_path: Path) -> None:
    is_asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def after_the_save(request: ModelRequest) -> Reply:
        is_asked.set()
        await may_go_on.wait()
        return calls("list_files")

    model = ScriptedModel([after_the_save, answers("done")], repeats=True)
    async with a_desk(client, model, tmp_path, CONFIG) as desk:
        early = await desk.loop.start("early")
        await is_asked.wait()
        assert await desk.save({INSTRUCTIONS: NEW, MAX: 7}) == 1
        late = await desk.loop.run("late")
        may_go_on.set()
        first = await desk.loop.ended(early)
        assert await desk.save({}, by="bob") == 2
        reset = await desk.loop.run("reset")
        versions = await settings_versions(client, desk.queue)
        await desk.check_history()

    by_task = {request.messages[0].text.split()[-1]: has_new_instructions(request) for request in model.seen}
    assert by_task == {"early": False, "late": True, "reset": False}
    assert (prepared(late)["settings_version"], prepared(late)["config"]["max_iterations"]) == (1, 7)
    assert "settings_version" not in prepared(first)
    assert (prepared(reset)["settings_version"], prepared(reset)["config"]["max_iterations"]) == (2, 25)
    assert [(each.version, each.by, len(each.changed)) for each in versions] == [(1, "ann", 2), (2, "bob", 2)]


async def test_a_run_without_saved_settings_has_no_trace_of_them(desk: Desk) -> None:
    ran = await desk.loop.run()

    assert b"settings" not in b"".join(event.SerializeToString() for event in ran.history.events)
    assert (await desk.read()).state == "absent"


async def test_goals_use_saved_templates_tiers_and_deliveries(client: Client, tmp_path: Path) -> None:
    config = {"goals": {"deliveries": {"file": {"kind": "file", "path": "{goal_id}.md"}}}}
    model = ScriptedModel([Reply.of("no plan")], repeats=True)
    async with a_desk(client, model, tmp_path, OrgaConfig.model_validate(config)) as desk:
        values = {"goals.prompts.planning": PLANNING, "models.tiers.heavy": ["openai:big"], "goals.tiers.plan": "heavy"}
        await desk.save({**values, "goals.deliveries.file.default": True})
        handle = await client.start_workflow(
            "GoalWorkflow", {"goal": "x"}, id=f"goal-{desk.queue}", task_queue=desk.queue
        )
        await handle.result()
        history = (await histories_of(client, handle.id))[0].to_json()

    assert model.seen[0].model == "openai:big"
    assert "Be brief: x by" in model.seen[0].messages[-1].text
    assert (tmp_path / f"goal-{desk.queue}.md").exists(), history


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"agents.default.tools": ["run_command"]}, "agents.default.tools: cannot be set at run time"),
    ({"models.tiers.local": ["openai:big"]}, "models.tiers.local: cannot be set at run time"),
    ({"goals.prompts.planning": "{{ gaol }}"}, "goals.prompts.planning: line 1: there is no placeholder 'gaol'"),
    ({MAX: 0}, "agents.default.config.max_iterations: 0 should be greater"),
    ({"agents.default.model": "tier:heavyy"}, "agents.default: model: there is no tier 'heavyy'"),
)


async def test_bad_settings_change_nothing_and_each_bad_key_is_named(desk: Desk) -> None:
    await desk.save({INSTRUCTIONS: NEW})
    for values, problem in BAD:
        with pytest.raises(InvalidSettings) as refused:
            await desk.save({INSTRUCTIONS: "other", **values})
        assert str(refused.value).startswith(problem), str(refused.value)
    with pytest.raises(InvalidSettings) as refused:
        await desk.save({key: value for values, _ in BAD[2:4] for key, value in values.items()})
    assert {each.where for each in refused.value.problems} == {*BAD[2][0], *BAD[3][0]}

    assert dict((await desk.read()).values) == {INSTRUCTIONS: NEW}
    await desk.check_history()


@pytest.mark.parametrize(
    "argument",
    [
        None,
        "text",
        [],
        {"version": 0},
        {"version": -1, "values": {}, "by": "a"},
        {"version": 0, "values": [], "by": ""},
    ],
    ids=str,
)
async def test_an_argument_of_another_shape_is_refused(desk: Desk, argument: Any) -> None:
    await desk.save({INSTRUCTIONS: NEW})

    handle = desk.loop.client.get_workflow_handle(settings_id(desk.queue))
    with pytest.raises(WorkflowUpdateFailedError):
        await send_update(handle, "save", argument)

    assert (await desk.read()).version == 1


async def test_settings_based_on_an_older_version_are_refused(desk: Desk) -> None:
    await desk.save({INSTRUCTIONS: NEW}, version=0)

    with pytest.raises(StaleSettings, match="made from version 0, and the current one is 1, saved by ann"):
        await desk.save({INSTRUCTIONS: "mine"}, by="bob", version=0)

    together = await asyncio.gather(
        *(desk.save({INSTRUCTIONS: by}, by=by, version=1) for by in "abc"), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in together) == ["StaleSettings", "StaleSettings", "int"]
    assert (await desk.read()).version == 2


async def test_versions_survive_continue_as_new(desk: Desk) -> None:
    full = SettingsState(full_events=20)
    await desk.loop.client.start_workflow(SETTINGS_WORKFLOW, full, id=settings_id(desk.queue), task_queue=desk.queue)
    for number in range(1, 6):
        assert await desk.save({MAX: number}) == number

    versions = await settings_versions(desk.loop.client, desk.queue)
    assert [each.values for each in versions] == [{MAX: n} for n in range(1, 6)]
    assert await desk.check_history() > 1
    assert prepared(await desk.loop.run())["config"]["max_iterations"] == 5


@pytest.mark.parametrize("delay_s", [0.0, 0.02], ids=["during its check", "around its end"])
async def test_a_kill_during_a_save_leaves_the_old_settings_or_the_new_ones(
    client: Client, model: ScriptedModel, tmp_path: Path, delay_s: float
) -> None:
    queue = f"test-{uuid.uuid4()}"
    workflow_id = settings_id(queue)
    await client.start_workflow(SETTINGS_WORKFLOW, id=workflow_id, task_queue=queue, task_timeout=timedelta(seconds=1))
    async with killed_worker(client, queue, delay_s) as process:
        saving = asyncio.ensure_future(
            save_settings(client, {INSTRUCTIONS: NEW}, version=0, by="ann", task_queue=queue)
        )
        assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL
    async with a_desk(client, model, tmp_path, CONFIG, queue=queue) as desk:
        with suppress(NoAnswer):
            await saving
        found = await desk.read()
        assert (found.version, dict(found.values)) in [(0, {}), (1, {INSTRUCTIONS: NEW})]
        assert await desk.save({INSTRUCTIONS: "other"}) == found.version + 1
        assert [each.version for each in await settings_versions(client, queue)] == [*range(1, found.version + 2)]
        assert prepared(await desk.loop.run())["settings_version"] == found.version + 1


@asynccontextmanager
async def killed_worker(client: Client, queue: str, delay_s: float) -> AsyncGenerator[subprocess.Popen[bytes]]:
    """Run a worker process that kills itself this many seconds after the check of new settings began."""
    address = client.service_client.config.target_host
    command = [sys.executable, "-m", "tests.support.crash.settings", address, queue, str(delay_s)]
    process = subprocess.Popen(command)
    try:
        await wait_until(lambda: may_be_polled(client, queue))
        yield process
    finally:
        process.kill()
        process.wait()


WIDER = {"agents.default.tools": ["run_command"], INSTRUCTIONS: NEW}
FORGED: dict[str, tuple[str, Any]] = {
    "a workflow of another type": ("AgentWorkflow", None),
    "a memo that is no set": (SETTINGS_WORKFLOW, "x" * 1_000),
    "a version that is no number": (SETTINGS_WORKFLOW, {"version": "new", "values": {INSTRUCTIONS: NEW}}),
    "a set that widens powers": (SETTINGS_WORKFLOW, {"version": 3, "values": WIDER}),
    "a set that no save would take": (SETTINGS_WORKFLOW, {"version": 3, "values": {INSTRUCTIONS: NEW, MAX: 0}}),
    "a set that is too large": (SETTINGS_WORKFLOW, {"version": 3, "values": {INSTRUCTIONS: "x" * 300_000}}),
}
"""Workflow types and memos that anybody with access to the server can start under the id of the settings."""


async def test_doctor_reports_whether_settings_are_in_effect(client: Client, desk: Desk) -> None:
    assert "nothing is set" in (await settings_check(client, desk.queue, CONFIG)).detail
    await desk.save({INSTRUCTIONS: NEW, MAX: 9})
    assert "version 1 of the settings at run time, 2 keys" in (await settings_check(client, desk.queue, CONFIG)).detail
    await client.start_workflow(
        SETTINGS_WORKFLOW,
        id=settings_id("forged"),
        task_queue="nobody",
        memo={SETTINGS_MEMO: {"version": 3, "values": WIDER}},
    )
    check = await settings_check(client, "forged", CONFIG)
    assert (check.ok, check.warning) == (True, True)
    assert "do not count" in check.detail
    assert "agents.default.tools: cannot be set at run time" in check.detail


@pytest.mark.parametrize("forged", FORGED)
async def test_unusable_settings_prevent_no_start(client: Client, desk: Desk, forged: str) -> None:
    kind, memo = FORGED[forged]
    given = {} if memo is None else {SETTINGS_MEMO: memo}
    # on a queue without workers, so that it stays unchanged
    await client.start_workflow(kind, "x", id=settings_id(desk.queue), task_queue="nobody", memo=given)

    ran = await desk.loop.run()

    assert ran.result.termination.reason == "completed"
    assert "settings_version" not in prepared(ran)
    assert NEW not in ran.history.to_json()


async def test_settings_move_to_the_current_version_of_a_deployment(
    client: Client, model: ScriptedModel, tmp_path: Path
) -> None:
    """Workers of the version on which they were first saved may be gone for ever."""
    deployment, queue = a_deployment(client), f"test-{uuid.uuid4()}"
    async with a_desk(client, model, tmp_path, CONFIG, queue=queue, version=deployment.version("1")) as old:
        await deployment.make_current("1")
        await old.save({MAX: 7})
    async with a_desk(client, model, tmp_path, CONFIG, queue=queue, version=deployment.version("2")) as new:
        await deployment.make_current("2")
        assert await new.save({MAX: 8}) == 2
        assert prepared(await new.loop.run())["settings_version"] == 2
        [history] = await histories_of(client, settings_id(queue))
    assert builds_of(history) == {"1", "2"}


async def test_settings_of_a_terminated_workflow_have_no_effect(desk: Desk) -> None:
    await desk.save({INSTRUCTIONS: NEW})
    await desk.loop.client.get_workflow_handle(settings_id(desk.queue)).terminate("gone")

    assert (await desk.read()).state == "absent"
    assert await desk.save({INSTRUCTIONS: "again"}) == 1


async def test_nothing_is_saved_without_a_worker(client: Client) -> None:
    with pytest.raises(NoAnswer, match="no worker answered"):
        await save_settings(client, {}, version=0, by="ann", task_queue="nobody-there")
    assert (await read_settings(client, "nobody-there")).state == "absent"


async def test_the_console_shows_and_saves_settings(client: Client, desk: Desk) -> None:
    async with a_console(client, desk.queue) as console:
        empty = await console.get("/settings")
        saved = await console.put("/settings", {"version": 0, "values": {MAX: 9, "goals.prompts.planning": PLANNING}})
        shown = await console.get("/settings")
        stale = await console.put("/settings", {"version": 0, "values": {}})
        bad = await console.put("/settings", {"version": 1, "values": {MAX: 0, "policy.engine": "allow"}})
        unknown = await console.put("/settings", {"version": 1, "values": {}, "by": "somebody else"})
        reset = (await console.put("/settings", {"version": 1, "values": {}})).json()

    assert (empty["state"], empty["version"], empty["versions"]) == ("absent", 0, [])
    assert (saved.status_code, saved.json()) == (200, shown)
    items = {item["key"]: item for item in shown["items"]}
    assert (items[MAX]["value"], items[MAX]["file_value"], items[MAX]["source"]) == (9, 25, "run time")
    assert items[MAX]["range"] == {"minimum": 1, "maximum": 1_000_000}
    assert items["goals.prompts.planning"]["template_variables"][1]["name"] == "skills"
    assert all(item["description"] and item["source"] in {"default", "run time"} for item in items.values())
    assert [(each["version"], each["by"], each["changed"]) for each in shown["versions"]] == [
        (1, OWNER, [MAX, "goals.prompts.planning"])
    ]
    assert (stale.status_code, bad.status_code, unknown.status_code) == (409, 422, 422)
    assert {each["where"] for each in bad.json()["errors"]} == {"policy.engine"}
    assert (reset["version"], [each["version"] for each in reset["versions"]]) == (2, [1, 2])
    assert {item["source"] for item in reset["items"]} == {"default"}


ODD = {
    "half of a character": (r'{"agents.default.instructions": "\ud800"}', INSTRUCTIONS),
    "an infinite number": (f'{{"{MAX}": 1e400}}', MAX),
    "a deep value": (f'{{"{MAX}": {"[" * 70}{"]" * 70}}}', MAX),
    "more values than an update may have": (f'{{"models.tiers.heavy": [{", ".join(["1"] * 1_100)}]}}', "input"),
    "no key": ('{"": 1}', "values"),
    "a key that is too long": (f'{{"{"x" * 400}": 1}}', ""),
    "many keys": ("{" + ", ".join(f'"k{number}": 1' for number in range(400)) + "}", "values"),
}


async def test_odd_json_is_refused_with_its_place(client: Client, desk: Desk) -> None:
    async with a_console(client, desk.queue) as console:
        for name, (values, where) in ODD.items():
            body = f'{{"version": 0, "values": {values}}}'
            headers = {"Content-Type": "application/json"}
            refused = await console.http.put(f"{API}/settings", content=body, headers=headers)
            assert refused.status_code == 422, (name, refused.text)
            assert refused.json()["errors"][0]["where"].startswith(where), (name, refused.text)
    assert (await desk.read()).version == 0


async def test_only_admins_may_save(client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_console(client, desk.queue, read_only=True) as console:
        looked_at = await console.put("/settings", {"version": 0, "values": {MAX: 9}})
    visitor = Visitor(OWNER, ("viewer", "operator", "approver"))
    monkeypatch.setattr(Doors, "visitor", Mock(return_value=visitor))
    async with a_console(client, desk.queue) as console:
        approver = await console.put("/settings", {"version": 0, "values": {MAX: 9}})

    assert (looked_at.status_code, "this console is read-only" in looked_at.text) == (403, True)
    assert (approver.status_code, "this needs the role admin" in approver.text) == (403, True)
    assert (await desk.read()).state == "absent"


async def test_the_console_shows_broken_settings(client: Client, desk: Desk) -> None:
    memo = {SETTINGS_MEMO: {"version": 3, "values": WIDER}}
    await client.start_workflow(SETTINGS_WORKFLOW, id=settings_id(desk.queue), task_queue="nobody", memo=memo)
    async with a_console(client, desk.queue) as console:
        shown = await console.get("/settings")

    assert shown["state"] == "broken"
    assert "agents.default.tools: cannot be set at run time" in shown["detail"]
    assert {item["source"] for item in shown["items"]} == {"default"}


TOML = """
[agents.coder]
description = "writes"
tools = ["read_file", "count"]
instructions = "The key is plant-in-a-variable-1234567."

[tools]
manifests = ["count.toml"]

[tools.options.read_file]
timeout_s = 7

[mcp.servers.house]
command = "secret-program"
args = ["--token", "house-token"]

[goals.prompts]
summary = "{{ steps }}{{ ending }}"
"""
MANIFEST = """
name = "count"
description = "Counts."
effect = "read_only"

[command]
argv = ["wc", "-w"]
"""
CEDAR = """
@id("reads")
permit (principal, action, resource);

@id("secrets")
forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "secret/*" };
"""


async def test_the_console_shows_the_admin_pages(
    client: Client, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "plant-in-a-variable-1234567")
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.cedar").write_text(CEDAR)
    (tmp_path / "count.toml").write_text(MANIFEST)
    (tmp_path / "orga.toml").write_text(TOML)
    await desk.save({MAX: 9})
    async with a_console(client, desk.queue, config_file=tmp_path / "orga.toml") as console:
        seen = {
            name: await console.get(f"/{name}")
            for name in ("agents", "models", "tools", "policies", "prompts", "schedules", "workers", "settings")
        }
        seen["knowledge"] = await console.get("/knowledge", text="retries")
        seen |= {f"{name}, checked": await console.get(f"/{name}", check="") for name in ("models", "tools")}
        judged = await console.post("/policies/test", {"tool": "read_file", "arguments": {"path": "secret/a"}})
        unknown = await console.post("/policies/test", {"tool": "fly"})
        monkeypatch.delenv("ORGA_TRUST")
        untrusted = await console.post("/policies/test", {"tool": "read_file"})

    assert (untrusted.status_code, "nobody has trusted it" in untrusted.text) == (503, True), untrusted.text
    assert (judged.json()["outcome"], [each["id"] for each in judged.json()["policies"]]) == ("deny", ["secrets"])
    assert (unknown.status_code, unknown.json()["errors"][0]["where"]) == (422, "tool")
    agents = {each["name"]: each for each in seen["agents"]["items"]}
    assert (agents["default"]["config"]["max_iterations"], agents["coder"]["description"]) == (9, "writes")
    assert any(each["named_by"] == "default" for each in seen["models"]["items"])
    tools = {each["name"]: each for each in seen["tools"]["items"]}
    assert (tools["count"]["source"], tools["count"]["agents"]) == ("manifest count.toml", ["coder"])
    assert tools["read_file"]["options"] == {"timeout_s": 7.0}
    assert [(each["name"], each["reachable"]) for each in seen["tools"]["servers"]] == [("house", None)]
    assert [(each["name"], each["reachable"]) for each in seen["tools, checked"]["servers"]] == [("house", False)]
    models, checked = ({each["model"]: each for each in seen[name]["items"]} for name in ("models", "models, checked"))
    assert {each["reachable"] for each in models.values()} == {None}
    examples = [each for name, each in checked.items() if name.endswith(":NAME")]
    assert {each["reachable"] for each in examples} == {None}, "there is no model to ask for"
    asked = [each for each in checked.values() if each not in examples]
    assert all(each["reachable"] == (each["problem"] is None) for each in asked)
    assert any(each["input_price"] and each["output_price"] for each in models.values())
    assert seen["workers"]["retention_days"] > 0
    assert {each["key"]: each["place"] for each in seen["settings"]["fixed"]} == {
        "agents.coder.description": "orga.toml:3",
        "agents.coder.tools": "orga.toml:4",
        "tools.manifests": "orga.toml:8",
        "tools.options.read_file": "orga.toml:10",
        "mcp.servers.house": "orga.toml:13",
    }
    assert [(each["id"], each["place"], each["effect"]) for each in seen["policies"]["items"]] == [
        ("reads", "policies/own.cedar:2", "permit"),
        ("secrets", "policies/own.cedar:5", "forbid"),
    ]
    assert (seen["policies"]["engine"], bool(seen["policies"]["version"])) == ("cedar", True)
    assert {each["key"] for each in seen["prompts"]["items"]} >= {"goals.prompts.planning", "goals.prompts.summary"}
    assert [each["task_queue"] for each in seen["workers"]["items"]] == [desk.queue]
    assert all(each["next"] is None for name, each in seen.items() if name != "settings")
    text = str(seen)
    assert not [
        word for word in (str(tmp_path), "plant-in-a-variable", "secret-program", "house-token") if word in text
    ]


async def test_the_console_acts_on_schedules(client: Client, desk: Desk) -> None:
    name = f"nightly-{uuid.uuid4()}"
    await create_schedule(client, name, {"task": "look after the lamps"}, cron="0 3 * * *", task_queue=desk.queue)
    async with a_console(client, desk.queue) as console:

        async def act(kind: str) -> Any:
            return (await console.post(f"/schedules/{name}/actions", {"kind": kind})).json()

        async def is_listed() -> bool:
            return name in {each["id"] for each in (await console.get("/schedules"))["items"]}

        await wait_until(is_listed)
        assert (await act("pause"))["outcome"] == "paused"
        described = await client.get_schedule_handle(name).describe()
        assert (described.schedule.state.paused, described.schedule.state.note) == (True, f"{OWNER}: pause")
        assert (await act("resume"))["outcome"] == "resumed"
        triggered = await act("trigger")
        assert triggered["outcome"] == "started"
        await client.get_workflow_handle(triggered["run_id"]).result()
        assert (await act("delete"))["outcome"] == "deleted"
        assert (await act("delete"))["status"] == 404
