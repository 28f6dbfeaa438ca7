"""Workers are killed during a recovery: the configured strategy is carried out once, and recorded once."""

import re
import signal
from collections import Counter
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from orga.activities.ports import ToolError
from orga.testing import FakeTool
from orga.workflows.types.tool_calls.recovery import Recovery
from tests.support.crash.stage import Case, Outcome, Outcomes, Stage, dying_at, outcome_of, play_all
from tests.support.crash.worker import Backstage
from tests.support.runs.questions import send_update

BACKOFF_MS = 6_000


def failing(times: int) -> Any:
    """Return the body of a tool that works only after this many failures."""

    def body(number: int) -> str:
        if number <= times:
            raise ToolError("down", retryable=True)
        return "works again"

    return body


def works_once(number: int) -> str:
    if number > 1:
        raise ToolError("down", retryable=True)
    return "found"


def troupe(backstage: Backstage) -> list[FakeTool]:
    retried = Recovery(max_attempts=2, base_delay_ms=BACKOFF_MS)
    replaced = Recovery(strategy="fallback", alternatives=("tape", "paper"), max_attempts=1)
    risky = Recovery(strategy="fallback", alternatives=("burn", "paper"), max_attempts=1)
    remembered = Recovery(strategy="cached_result", max_attempts=1)
    buried = Recovery(strategy="dead_letter", max_attempts=2, base_delay_ms=1)
    return [
        backstage.tool("flaky", body=failing(1), recovery=retried),
        backstage.tool("save", body=failing(9), recovery=replaced),
        backstage.tool("write", body=failing(9), recovery=risky),
        backstage.tool("tape"),
        backstage.tool("burn", "irreversible"),
        backstage.tool("paper"),
        backstage.tool("ask", "read_only", works_once, recovery=remembered),
        backstage.tool("mail", body=failing(2), recovery=buried),
        backstage.tool("hold", held=True),
        backstage.tool("look"),
    ]


async def backs_off(stage: Stage) -> None:
    """Wait until the server waits with the second attempt."""

    async def waits() -> bool:
        pending = (await stage.handle.describe()).raw_description.pending_activities
        scheduled = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        return [(a.attempt, a.state) for a in pending if a.activity_type.name == "flaky"] == [(2, scheduled)]

    await stage.until(waits)
    async with stage.without_worker():
        pass


async def sends_again(stage: Stage) -> None:
    """Requeue the first dead letter while another call is in flight."""
    await stage.had_effect("hold")
    await send_update(stage.handle, "requeue", "1.0")
    stage.release()


RETRY: dict[str, Any] = {"plan": ("flaky",), "cast": troupe, "happens": backs_off}
FALLBACK: dict[str, Any] = {"plan": ("save", "look"), "cast": troupe}
RISKY: dict[str, Any] = {"plan": ("write", "look"), "cast": troupe}
CACHED: dict[str, Any] = {"plan": ("ask", "ask"), "cast": troupe}
BURIED: dict[str, Any] = {"plan": ("mail", "hold", "look"), "cast": troupe, "happens": sends_again}

CASES: dict[str, Case] = {
    "retry": Case(**RETRY),
    "retry, during the backoff": Case(**RETRY, kills=True),
    "fallback": Case(**FALLBACK),
    "fallback, before the failure is seen": dying_at("after save", **FALLBACK),
    "fallback, while it is judged": dying_at("gate of tape", **FALLBACK),
    "fallback, while it runs": dying_at("tape", **FALLBACK),
    "fallback, while it is noted": dying_at("noting RecoveryTriggered", **FALLBACK),
    "risky fallback": Case(**RISKY),
    "risky fallback, while it runs": dying_at("burn", **RISKY),
    "cached": Case(**CACHED),
    "cached, before the good result is kept": dying_at("after ask", **CACHED),
    "cached, while it is noted": dying_at("noting RecoveryTriggered", **CACHED),
    "buried": Case(**BURIED),
    "buried, while it is noted": dying_at("noting RecoveryTriggered", **BURIED),
    "buried, when it is asked for": dying_at("asked to requeue", **BURIED),
    "buried, while it is sent again": dying_at("mail 3", **BURIED),
}

SAME = {
    "retry, during the backoff": [],
    "fallback, before the failure is seen": [],
    "fallback, while it is judged": [],
    "fallback, while it runs": ["tape"],
    "fallback, while it is noted": [],
    "cached, before the good result is kept": [],
    "cached, while it is noted": [],
    "buried, while it is noted": [],
    "buried, when it is asked for": ["hold"],
    "buried, while it is sent again": ["mail"],
}
"""The cases that a kill must not change, with the calls in flight, which run again."""


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", SAME)
async def test_a_kill_changes_nothing_in_a_recovery(outcomes: Outcomes, case: str) -> None:
    scene, _, _ = case.partition(",")
    undisturbed, outcome = outcome_of(outcomes, scene), outcome_of(outcomes, case)

    assert outcome.exits == [-signal.SIGKILL]
    assert Counter(outcome.tools) == Counter([*undisturbed.tools, *SAME[case]])
    assert len({key for _, key in outcome.effects}) == len({key for _, key in undisturbed.effects})
    assert ageless(outcome) == ageless(undisturbed)


def ageless(outcome: Outcome) -> list[str]:
    """Return the journal without the age of a cached result."""
    return [re.sub(r"\d+ s old|sha256:\w+", "", str(entry)) for entry in outcome.journal]


async def test_the_undisturbed_runs_used_each_recovery(outcomes: Outcomes) -> None:
    """This ensures that the comparisons are about recoveries."""
    outputs = {scene: outcome_of(outcomes, scene).output for scene in ("retry", "fallback", "risky fallback", "buried")}

    assert outputs["retry"] == ["works again"]
    assert outputs["fallback"][0].startswith("[Fallback] tape answered instead")
    assert outputs["risky fallback"][0].startswith("[Fallback] burn answered instead")
    assert outputs["buried"][1].startswith("[Dead letter] The call is kept as 1.0")
    assert outputs["buried"][3:5] == ["[Requeued call] mail (1.0), sent again by an operator:", "works again"]
    assert outcome_of(outcomes, "cached").output[1].startswith("[Cached result, ")
    strategies = [
        [data["strategy"] for data in outcome_of(outcomes, scene).data("RecoveryTriggered")]
        for scene in ("retry", "fallback", "risky fallback", "cached", "buried")
    ]
    assert strategies == [["retry"], ["fallback"], ["fallback"], ["cached_result"], ["dead_letter", "requeue"]]


async def test_no_other_tool_is_tried_after_a_fallback_that_may_have_had_its_effect(outcomes: Outcomes) -> None:
    """Its worker died during the fallback, so the next alternative could repeat the effect in another way."""
    outcome = outcome_of(outcomes, "risky fallback, while it runs")

    assert outcome.exits == [-signal.SIGKILL]
    assert outcome.tools == ["write", "burn", "look"]
    assert "burn" in outcome.output[0]
    assert "The outcome is unknown: it may have taken effect." in outcome.output[0]
    assert [data["outcome"] for data in outcome.data("RecoveryTriggered")] == ["failed"]
