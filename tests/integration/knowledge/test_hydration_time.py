"""The deadline of pre-hydration in workflow time, on the time-skipping server."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.loop import a_loop

SCHEMA = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


async def test_a_lookup_that_waits_for_its_next_attempt_ends_at_the_deadline(environment: WorkflowEnvironment) -> None:
    """The second attempt is due after 200 s. The phase has 90 s, whatever the run's own time limit allows."""

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if arguments["url"].endswith("flaky"):
            raise ToolError("not yet", retryable=True)
        return "the page"

    options = ToolOptions(max_attempts=2, initial_interval_s=200, max_interval_s=200)
    fetch = FakeTool("fetch_url", body, parameters=SCHEMA, options=options)
    async with a_loop(environment.client, [answers()], fetch) as loop:
        loop.execution_timeout = timedelta(hours=1)
        ran = await loop.run("https://a.io/flaky https://a.io/good", pre_hydration={"timeout_s": 90})

    assert isinstance(loop.provider, ScriptedModel)
    block = loop.provider.seen[0].messages[1].text
    assert "the page" in block
    assert "- https://a.io/flaky (url): not there within 90 s" in block
    assert 90 <= ran.result.duration_s < 130
    assert [context.attempt for context in fetch.contexts].count(2) == 0


async def test_the_timer_is_cancelled_once_all_lookups_are_done(environment: WorkflowEnvironment) -> None:
    fetch = FakeTool("fetch_url", lambda arguments, context: "the page", parameters=SCHEMA)
    async with a_loop(environment.client, [answers()], fetch) as loop:
        ran = await loop.run("https://a.io")

    kinds = [event.event_type for event in ran.history.events]
    timers = [
        e.timer_started_event_attributes for e in ran.history.events if e.HasField("timer_started_event_attributes")
    ]
    assert 15 in [timer.start_to_fire_timeout.ToSeconds() for timer in timers]
    assert EventType.EVENT_TYPE_TIMER_CANCELED in kinds
    assert EventType.EVENT_TYPE_TIMER_FIRED not in kinds
    assert ran.result.duration_s < 15
