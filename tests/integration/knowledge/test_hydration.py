"""References in a task are looked up before the first reasoning step, on a real server."""

from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ModelRequest, ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Message
from orga.workflows.types.recall import LOOKUPS_HEADER
from tests.support.hold import Hold, wait_for_event
from tests.support.runs.loop import WORKER_FACTS, Deny, Loop, Ran, a_loop
from tests.support.runs.waits import wait_until_paused
from tests.support.tools.lookups import a_tool, fetching, issues

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


def requests_of(loop: Loop) -> list[ModelRequest]:
    assert isinstance(loop.provider, ScriptedModel)
    return loop.provider.seen


def block_of(loop: Loop) -> Message:
    """Return the second message of the first model call."""
    return requests_of(loop)[0].messages[1]


def hydration_event(ran: Ran) -> dict[str, Any]:
    """Return the data of the journal entry about the references."""
    (entry,) = [entry for entry in ran.journal if entry.event == "PreHydrationComplete"]
    return entry.data


def statuses(ran: Ran) -> list[tuple[str, str]]:
    return [(line["value"], line["status"]) for line in hydration_event(ran)["references"]]


async def test_references_are_in_the_first_model_call(client: Client) -> None:
    fetch, issue = fetching(), issues()
    async with a_loop(client, [answers("read")], fetch, issue) as loop:
        ran = await loop.run("Compare https://a.io with #42.")

    task, block = requests_of(loop)[0].messages
    assert task.text == "Compare https://a.io with #42."
    assert (block.role, block.pinned) == ("user", True)
    assert block.text.startswith(LOOKUPS_HEADER)
    assert "page of https://a.io" in block.text
    assert "issue #42" in block.text
    assert [context.call_id for context in (*fetch.contexts, *issue.contexts)] == ["hydrate_0", "hydrate_1"]
    assert ran.result.tool_calls.model_dump() == {"proposed": 2, "run": 2, "denied": 0, "failed": 0}
    assert hydration_event(ran)["total_tokens"] == 8, "29 bytes at 4 bytes per token"
    assert ran.events.index("PreHydrationComplete") < ran.events.index("ReasoningComplete")


async def test_a_task_without_references_leaves_no_trace(client: Client) -> None:
    async with a_loop(client, [answers()], fetching()) as loop:
        ran = await loop.run("Just talk.")

    kinds = [event.event_type for event in ran.history.events]
    assert EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED not in kinds
    assert EventType.EVENT_TYPE_TIMER_STARTED not in kinds[: kinds.index(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)]
    assert kinds.count(EventType.EVENT_TYPE_MARKER_RECORDED) == 1, "the gate on the answer"
    assert ran.events[:4] == ["Started", "Prepared", "ReasoningComplete", "PolicyEvaluated"]


async def test_hydration_can_be_switched_off(client: Client) -> None:
    fetch = fetching()
    async with a_loop(client, [answers()], fetch) as loop:
        ran = await loop.run("See https://a.io", pre_hydration={"enabled": False})

    assert fetch.contexts == []
    assert "PreHydrationComplete" not in ran.events


async def test_an_unresolvable_reference_is_in_the_journal_and_costs_no_call(client: Client) -> None:
    async with a_loop(client, [answers()]) as loop:
        ran = await loop.run("See https://a.io and #42")

    assert statuses(ran) == [("https://a.io", "unresolvable"), ("#42", "unresolvable")]
    assert len(requests_of(loop)[0].messages) == 1
    assert ran.result.tool_calls.proposed == 0


async def test_results_belong_to_their_reference_in_any_order_of_arrival(client: Client) -> None:
    hold = Hold()

    def body(arguments: dict[str, Any], context: ToolContext) -> Any:
        if arguments["url"].endswith("first"):
            return hold.then("the first page")
        hold.go.set()
        return "the second page"

    async with a_loop(client, [answers()], fetching(body)) as loop:
        ran = await loop.run("https://a.io/first https://a.io/second")

    lines = block_of(loop).text.split("\n")
    headings = {lines[i - 1].split(": ")[1]: line for i, line in enumerate(lines) if line.endswith(" page")}
    assert headings == {
        "https://a.io/first (url), from fetch_url]": "the first page",
        "https://a.io/second (url), from fetch_url]": "the second page",
    }
    assert statuses(ran) == [("https://a.io/first", "resolved"), ("https://a.io/second", "resolved")]


async def test_a_failure_belongs_to_its_own_reference(client: Client) -> None:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("no such page", kind="Http404")

    async with a_loop(client, [answers()], fetching(body), issues()) as loop:
        ran = await loop.run("https://a.io #42")

    assert statuses(ran) == [("https://a.io", "failed"), ("#42", "resolved")]
    assert "- https://a.io (url): [Error] Http404: no such page" in block_of(loop).text
    assert ran.result.tool_calls.failed == 1


async def test_the_gate_decides_on_each_lookup(client: Client) -> None:
    fetch = fetching()
    async with a_loop(client, [answers()], fetch, issues(), engine=Deny("fetch_url")) as loop:
        ran = await loop.run("https://a.io #42")

    assert fetch.contexts == []
    assert statuses(ran) == [("https://a.io", "failed"), ("#42", "resolved")]
    assert "[Policy denied] fetch_url is forbidden" in block_of(loop).text
    assert ran.result.tool_calls.model_dump() == {"proposed": 2, "run": 1, "denied": 1, "failed": 0}


async def test_arguments_are_checked_before_the_gate(client: Client) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    lookup = FakeTool("lookup", parameters=schema)
    custom = {
        "custom_patterns": [{"ref_type": "ticket", "pattern": r"OPS-\d+"}],
        "resolution_tools": {"ticket": "lookup"},
    }
    async with a_loop(client, [answers()], lookup) as loop:
        ran = await loop.run("OPS-1", pre_hydration=custom)

    assert lookup.contexts == []
    assert "do not fit" in hydration_event(ran)["references"][0]["why"]


async def test_a_custom_kind_is_resolved_by_any_tool(client: Client) -> None:
    lookup = a_tool("lookup", "key", lambda arguments, context: f"ticket {arguments['key']}")
    custom = {
        "custom_patterns": [{"ref_type": "ticket", "pattern": r"OPS-\d+"}],
        "resolution_tools": {"ticket": "lookup"},
    }
    async with a_loop(client, [answers()], lookup) as loop:
        await loop.run("What of OPS-12?", pre_hydration=custom)

    assert "ticket OPS-12" in block_of(loop).text


async def test_the_deadline_keeps_the_results_so_far(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers()], fetching(lambda a, c: hold.then("late")), issues()) as loop:
        ran = await loop.run("https://a.io #42", pre_hydration={"timeout_s": 3})
        await wait_for_event(hold.cancelled)

    assert statuses(ran) == [("https://a.io", "failed"), ("#42", "resolved")]
    assert "- https://a.io (url): not there within 3 s" in block_of(loop).text
    assert "issue #42" in block_of(loop).text
    assert ran.result.termination.reason == "completed"


async def test_contents_are_cut_to_the_budget(client: Client) -> None:
    async with a_loop(client, [answers()], fetching(lambda a, c: "é" * 5_000), issues()) as loop:
        ran = await loop.run("https://a.io #42", pre_hydration={"max_context_tokens": 100})

    assert hydration_event(ran)["total_tokens"] == 100
    assert "issue #42" in block_of(loop).text
    assert "é...[truncated]" in block_of(loop).text


async def test_calls_count_against_the_runs_limit(client: Client) -> None:
    fetch = fetching()
    async with a_loop(client, [answers()], fetch) as loop:
        ran = await loop.run("https://a.io https://b.io", max_tool_calls=1)

    assert len(fetch.contexts) == 1
    assert statuses(ran) == [("https://a.io", "resolved"), ("https://b.io", "unresolvable")]


async def test_an_abort_cancels_the_lookups(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers()], fetching(lambda a, c: hold.then("late"))) as loop:
        handle = await loop.start("https://a.io")
        await hold.reached()
        assert (await handle.query("status"))["phase"] == "hydrating"
        await handle.signal("abort", "enough")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "aborted"
    assert hydration_event(ran)["references"][0]["why"] == "the run was ended before"
    assert requests_of(loop) == []


async def test_the_time_limit_of_the_run_ends_the_lookups(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers()], fetching(lambda a, c: hold.then("late"))) as loop:
        ran = await loop.run("https://a.io", timeout_s=3)
        await wait_for_event(hold.cancelled)

    assert ran.result.termination.reason == "timeout"
    assert requests_of(loop) == []


async def test_a_pause_delays_the_first_model_call(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers()], fetching(lambda a, c: hold.then("the page"))) as loop:
        handle = await loop.start("https://a.io")
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        assert requests_of(loop) == []
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert "the page" in block_of(loop).text
    assert ran.result.termination.reason == "completed"


async def test_a_run_that_continues_as_new_does_not_look_up_again(client: Client) -> None:
    fetch, look = fetching(), FakeTool("look")
    async with a_loop(client, [calls("look"), answers()], fetch, look, setup=EACH_ITERATION) as loop:
        ran = await loop.run("https://a.io")

    assert len(ran.histories) > 1
    assert len(fetch.contexts) == 1
    assert ran.events.count("PreHydrationComplete") == 1
    assert requests_of(loop)[-1].messages[1].text.startswith(LOOKUPS_HEADER)


async def test_references_in_guidance_are_not_looked_up(client: Client) -> None:
    """Guidance arrives while the run is live, so the model decides what to do about it."""
    fetch, hold = fetching(), Hold()
    async with a_loop(client, [hold.step(answers("one")), answers("two")], fetch) as loop:
        handle = await loop.start("Just talk.")
        await hold.reached()
        await handle.signal("steer", "see https://a.io")
        hold.go.set()
        await loop.ended(handle)

    assert fetch.contexts == []


async def test_the_deadline_closes_a_question_that_a_lookup_asked(client: Client) -> None:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("no such page", kind="Http404")

    async with a_loop(client, [answers()], fetching(body)) as loop:
        handle = await loop.start(
            "https://a.io", recovery={"strategy": "escalate", "max_attempts": 1}, pre_hydration={"timeout_s": 1}
        )
        ran = await loop.ended(handle)
        assert (await handle.query("status"))["waiting"] == []

    assert ran.result.termination.reason == "completed"
    assert statuses(ran) == [("https://a.io", "failed")]


async def test_the_offline_model_answers_from_a_file_that_the_task_names(client: Client, tmp_path: Path) -> None:
    """The file was read before the first step, so nothing is left to search for."""
    (tmp_path / "hive.md").write_text("# Hive\n\nThe hive has forty drones in summer.\n")
    reader = ReadFile(FileRoot(tmp_path))
    async with a_loop(client, ExtractiveProvider(), reader) as loop:
        ran = await loop.run("How many drones in summer does the hive of ./hive.md have?")

    assert "> The hive has forty drones in summer." in ran.result.output
    assert "`hive.md:" in ran.result.output
    assert (ran.result.iterations, ran.result.tool_calls.run) == (1, 1)
