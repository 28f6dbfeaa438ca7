"""`orga.testing` on real servers: runs, skipped time, and the errors that a test gets."""

import json
import stat
import textwrap
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory

from examples.parts.parts import MemoryBlobs
from orga import Agent, Media, tool
from orga.activities.media import digest_of
from orga.client.errors import OrgaError, ServerUnavailable
from orga.client.runs.attachments import blob_store
from orga.client.testing.script import ScriptedModels
from orga.testing import (
    Environment,
    FakeTool,
    NoHistory,
    NotEnded,
    ReplayDiffers,
    ScriptExhausted,
    answers,
    assert_called,
    assert_denied,
    calls,
    environment,
    forbids,
    journal_of,
    permanent,
    permits,
    policy_folder,
    replay,
    scripted,
    transient,
)
from tests.replay.test_histories import HISTORIES
from tests.support.parts.time_skipping import prepared_test_server
from tests.support.values.pictures import a_png


@tool(effect="idempotent")
def pay(cents: int) -> str:
    """Pay.

    Args:
        cents: How much.
    """
    return f"really paid {cents}"


CLERK = Agent("clerk", tools=[pay, "ask_user"])
LAST = 5 * 86400


@pytest.fixture(scope="module")
async def env() -> AsyncGenerator[Environment]:
    prepared_test_server()
    async with environment() as found:
        yield found


async def test_tools_are_real_unless_replaced_by_a_fake(env: Environment) -> None:
    script = [calls("pay", cents=9), answers()]
    real = await env.run(CLERK, "Pay.", model=(model := scripted(*script)))
    assert model.seen[1].messages[-1].text == "really paid 9"
    assert_called(real.journal, "pay", times=1)
    bank = FakeTool("pay", "faked")
    await env.run("clerk", "Pay.", agents=[CLERK], model=(model := scripted(*script)), fakes=[bank])
    assert (model.seen[1].messages[-1].text, bank.calls) == ("faked", [{"cents": 9}])
    assert model.seen[0].tools[0].parameters["properties"].keys() == {"cents"}


async def test_a_transient_failure_is_retried_and_a_permanent_one_is_reported(env: Environment) -> None:
    bank = FakeTool("pay", [transient("busy"), permanent("no such account")])
    model = scripted(calls("pay", cents=9), answers())
    ran = await env.run(CLERK, "Pay.", model=model, fakes=[bank])
    [tried] = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    assert (tried["strategy"], tried["attempts"], tried["outcome"]) == ("retry", 2, "failed")
    assert len({context.idempotency_key for context in bank.contexts}) == 1
    assert len(bank.calls) == 2
    assert "no such account" in model.seen[1].messages[-1].text


class Order(BaseModel):
    """An order."""

    number: str
    total: int


@tool(effect="read_only")
def get_order(number: str) -> Order:
    """Return an order."""
    return Order(number=number, total=1_000)


CHEAP = """@id("cheap") permit (principal, action == Action::"tool_call", resource)
when {
  resource.name == "get_order" ||
  context.values has get_order && context.values.get_order has total && context.values.get_order.total < 50
};
"""


@pytest.mark.parametrize(("total", "times"), [(40, 1), (60, 0)])
async def test_a_policy_sees_the_value_of_a_fake(env: Environment, tmp_path: Path, total: int, times: int) -> None:
    policy = policy_folder(tmp_path, CHEAP, permits("none"))
    fakes = [FakeTool("get_order", Order(number="7", total=total))]
    model = scripted(calls("get_order", number="7"), calls("pay", cents=total), answers(Order(number="7", total=0)))
    agent = Agent("teller", tools=[get_order, pay])
    task = {"task": "Pay.", "output_schema": Order}
    ran = await env.run(agent, task, model=model, fakes=fakes, policy=policy)
    assert_called(ran.journal, "pay", times=times)
    assert ran.result.data_as(Order) == Order(number="7", total=0)


@pytest.fixture
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("_own_home")
async def test_a_picture_can_be_attached(env: Environment) -> None:
    picture = a_png(8, 6)
    ran = await env.run(CLERK, "Look.", model=(model := scripted(answers())), attachments=[Media(picture, "a.png")])
    assert ran.result.termination.reason == "completed"
    assert [part.name for part in model.seen[0].messages[0].media] == ["a.png"]


@pytest.mark.usefixtures("_own_home")
async def test_a_store_of_pictures_belongs_to_one_worker(env: Environment) -> None:
    store, (first, second) = MemoryBlobs(), (a_png(9, 6), a_png(10, 6))
    await env.run(CLERK, "Look.", model=scripted(answers()), attachments=[first], blobs=store)
    await env.run(CLERK, "Look.", model=scripted(answers()), attachments=[second])
    assert [await store.get(digest_of(each)) for each in (first, second)] == [first, None]
    assert [await blob_store().get(digest_of(each)) for each in (first, second)] == [None, second]


async def test_a_script_that_is_too_short_fails_the_test(env: Environment) -> None:
    with pytest.raises(ScriptExhausted, match=r"1 steps.*the last tool: 'really paid 9'"):
        await env.run(CLERK, "Pay.", model=scripted(calls("pay", cents=9)))


async def test_days_of_waiting_take_no_real_time(env: Environment) -> None:
    async with env.worker(agents=[CLERK], model=scripted(calls("ask_user", question="Whose?"), answers())) as at_work:
        handle = await at_work.start(CLERK, "Ask.", settings={"timeout_s": 60})
        assert (await at_work.waits(handle)).question == "Whose?"
        before = await env.now()
        await env.sleep(LAST)
        await handle.answer("Ada's")
        ran = await at_work.ended(handle)
    assert env.skips_time
    assert await env.now() - before >= timedelta(days=5)
    assert ran.result.termination.reason == "completed"


async def test_time_is_skipped_while_a_test_waits_for_an_end(env: Environment, tmp_path: Path) -> None:
    """An approval that nobody gives expires, although an earlier test has left a run unfinished."""
    policy = policy_folder(tmp_path, permits(), '@id("ask") @approval("ada") @expires("30d") ' + forbids("pay")[17:])
    script = [calls("pay", cents=9), answers()]
    async with env.worker(agents=[CLERK], model=scripted(*script), policy=policy) as at_work:
        left = await at_work.start(CLERK, "Pay.")
        assert (await at_work.waits(left)).pending_approvals[0].approvers == ("ada",)
    ran = await env.run(CLERK, "Pay.", model=scripted(*script), policy=policy)
    assert_denied(ran.journal, "pay", rule="ask")
    assert ran.journal[-1].timestamp - ran.journal[0].timestamp > timedelta(days=30)
    assert (await left.describe()).status == WorkflowExecutionStatus.TERMINATED


async def test_the_error_for_a_run_that_does_not_end_names_what_it_waits_for(env: Environment) -> None:
    """The error for an end that does not come says what the run is doing."""
    script = [calls("pay", cents="nine"), calls("ask_user", question="Whose?"), answers()]
    async with env.worker(agents=[CLERK], model=scripted(*script)) as at_work:
        handle = await at_work.start(CLERK, "Ask.", settings={"timeout_s": 60})
        await at_work.waits(handle)
        reported = (
            r'(?s)until all time was skipped.*refused proposal: 1: pay {"cents": "nine"} was invalid: .*\n.*ask_user'
        )
        with pytest.raises(NotEnded, match=reported):
            await at_work.ended(handle)


async def test_the_error_for_an_ended_run_shows_its_refused_proposals(env: Environment) -> None:
    async with env.worker(agents=[CLERK], model=scripted(calls("fly"), answers())) as at_work:
        ran = await at_work.run(CLERK, "Go.")
        with pytest.raises(NotEnded, match=r"(?s)waits for nobody: it has ended.*refused proposal: 1: fly {}"):
            await at_work.waits(ran.handle)


async def test_a_journal_is_read_from_a_handle_a_history_or_a_file(env: Environment, tmp_path: Path) -> None:
    ran = await env.run(CLERK, "Pay.", model=scripted(calls("pay", cents=9), answers()))
    (file := tmp_path / "run.json").write_text(ran.history.to_json())
    reported = [entry.event for entry in ran.journal]
    for place in (ran.handle, ran.history, file, str(file), env.client.get_workflow_handle(ran.handle.id)):
        assert [entry.event for entry in await journal_of(place)] == reported
    assert await replay(ran.handle) == await replay(file) == 1


@activity.defn
async def first() -> None: ...


@activity.defn
async def second() -> None: ...


STEPS: list[Any] = [first, second]


@workflow.defn(name="Steps", sandboxed=False)
class Steps:
    @workflow.run
    async def run(self) -> None:
        for step in STEPS:
            if isinstance(step, Exception):
                raise step
            await workflow.execute_activity(step, start_to_close_timeout=timedelta(seconds=9))


@pytest.fixture(scope="module")
async def history(env: Environment) -> WorkflowHistory:
    async with env.worker(model=scripted(), workflows=[Steps], activities=[first, second]) as at_work:
        handle = await env.client.start_workflow(Steps.run, id="steps", task_queue=at_work.task_queue)
        await handle.result()
        return await handle.fetch_history()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [second, first], r"event 5, ActivityTaskScheduled first, differs: .* schedule_activity second", id="order"
        ),
        pytest.param([first], r"event 11, ActivityTaskScheduled second, differs: .* does complete_workflow", id="less"),
        pytest.param([first, second, first], r"event 17, WorkflowExecutionCompleted, differs: .* first", id="more"),
        pytest.param([first, ValueError("bad")], r"after event \d+ today's code fails: bad \(.*\.py:\d+\)", id="bug"),
    ],
)
async def test_a_replay_names_the_first_event_that_differs(
    steps: list[Any], expected: str, history: WorkflowHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await replay(history, workflows=[Steps]) == 1
    monkeypatch.setitem(globals(), "STEPS", steps)
    with pytest.raises(ReplayDiffers, match=expected):
        await replay(history, workflows=[Steps])


async def test_a_history_of_an_unknown_workflow_is_refused(history: WorkflowHistory) -> None:
    with pytest.raises(OrgaError, match=r"of a workflow Steps, .* name its class in workflows"):
        await replay(history)


async def test_a_folder_is_replayed_file_by_file(tmp_path: Path) -> None:
    """One of two recorded histories, that of an agent's run, was changed."""
    recorded = [path for path in HISTORIES if path.stem in {"answer", "tools-and-a-denial"}]
    for path in recorded:
        (tmp_path / path.name).write_text(path.read_text())
    assert await replay(tmp_path) == len(recorded) == 2
    changed = json.loads((tmp_path / "answer.json").read_text())
    key = "activityTaskScheduledEventAttributes"
    scheduled = [event[key] for event in changed["events"] if key in event]
    scheduled[0]["activityType"]["name"] = "guess"
    (tmp_path / "answer.json").write_text(json.dumps(changed))
    with pytest.raises(ReplayDiffers, match=r"answer\.json: event \d+, ActivityTaskScheduled guess, differs"):
        await replay(tmp_path)


async def test_a_file_that_is_not_a_history_shows_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match=r"no \*\.json files"):
        await replay(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(NoHistory, match="temporal workflow show"):
        await replay(tmp_path / "a.json")
    with pytest.raises(NoHistory, match="cannot be read: No such file"):
        await journal_of(tmp_path / "b.json")


async def test_without_a_server_the_attempts_and_the_remedy_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that does not exist keeps the SDK from downloading a server."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ORGA_TEST_SERVER", raising=False)
    with pytest.raises(ServerUnavailable, match=r"its download failed: .*there is no `java`.*install Java and Maven"):
        async with environment():
            pass
    monkeypatch.setenv("ORGA_TEST_SERVER", str(tmp_path / "none"))
    with pytest.raises(ServerUnavailable, match=r"ORGA_TEST_SERVER names .*none, which is no executable file"):
        async with environment():
            pass


async def test_the_named_server_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, named = tmp_path / "mark", tmp_path / "server"
    named.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        touch {mark}
        exec "{prepared_test_server()}" "$@"
        """)
    )
    named.chmod(named.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("ORGA_TEST_SERVER", str(named))
    async with environment():
        assert mark.exists()


async def test_a_server_in_real_time_knows_search_attributes() -> None:
    async with environment(time_skipping=False) as env:
        ran = await env.run(CLERK, "Pay.", model=scripted(answers("x")))
        found = await ran.handle.describe()
    assert not env.skips_time
    assert "OrgaAgent" in found.search_attributes


def test_the_providers_are_in_the_order_of_the_names() -> None:
    one, two = scripted(), scripted()
    assert [*ScriptedModels({"a": one, "b": two}).providers] == [one, two]
