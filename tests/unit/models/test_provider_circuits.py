"""The circuit of a provider, shared by the runs of a worker: what opens it, and when a model call is retried."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.circuits import GuardedModels, WorkerBreakers
from orga.activities.models.conversations import Conversations
from orga.activities.models.model_calls import LAST_TRY_S
from orga.activities.ports import ModelError, ModelRequest
from orga.activities.reason import ReasonActivities
from orga.client.testing.script import ScriptedModels
from orga.testing import ScriptedModel, answers
from orga.workflows.types.limits import SLACK_S
from orga.workflows.types.tool_calls.breakers import CIRCUIT_OPEN, CircuitOptions
from tests.support.runs.circuits import OPTIONS, Clock, clock, shared
from tests.support.tools.activities import Beats, NoHistory
from tests.support.values.core import a_request, a_setup, user

__all__ = ["clock", "shared"]

SETUP = a_setup(instructions="be short")


def failing(kind: str) -> ModelError:
    return ModelError(kind, "acme failed", retryable=True)


async def asked(models: GuardedModels, name: str = "acme:large") -> str:
    provider, model = models.resolve(name)
    return (await provider.complete(ModelRequest(model=model), lambda text: None)).text


def guarded_models(shared: WorkerBreakers, *steps: Any, options: CircuitOptions = OPTIONS) -> GuardedModels:
    return GuardedModels(ScriptedModels(ScriptedModel(steps, repeats=True)), shared, options)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *[
            pytest.param(kind, "open", id=kind)
            for kind in ("ServerError", "Overloaded", "ConnectionFailed", "Timeout", "BadStream")
        ],
        *[
            pytest.param(kind, "closed", id=f"not {kind}")
            for kind in ("RateLimited", "InvalidRequest", "AuthenticationFailed", "ContextOverflow", "ReplyTooLarge")
        ],
    ],
)
async def test_only_failures_of_the_provider_open_its_circuit(shared: WorkerBreakers, kind: str, expected: str) -> None:
    models = guarded_models(shared, failing(kind))
    for _ in range(3):
        with pytest.raises(ModelError, match="acme failed"):
            await asked(models)
    assert shared.circuit("provider:acme").state == expected


async def test_models_of_one_provider_share_a_circuit(shared: WorkerBreakers) -> None:
    models = guarded_models(shared, *[failing("ServerError")] * 3, answers("fine"))
    for name in ("acme:small", "acme:large", " acme:large"):
        with pytest.raises(ModelError, match="acme failed"):
            await asked(models, name)
    with pytest.raises(ModelError) as turned_away:
        await asked(models, "acme:small")
    assert (turned_away.value.kind, turned_away.value.retryable) == (CIRCUIT_OPEN, True)
    reported = "provider:acme is left alone for 60 s more (failures in a row: 3; last: ServerError: acme failed)"
    assert str(turned_away.value).startswith(reported)
    assert await asked(models, "other:large") == "fine"


async def test_a_disabled_circuit_never_opens(shared: WorkerBreakers) -> None:
    models = guarded_models(
        shared, *[failing("ServerError")] * 9, answers("fine"), options=CircuitOptions(enabled=False)
    )
    for _ in range(9):
        with pytest.raises(ModelError, match="acme failed"):
            await asked(models)
    assert await asked(models) == "fine"


@pytest.mark.parametrize(
    ("left_s", "seconds", "expected_s", "is_final"),
    [
        pytest.param(1_000, 18, 42, False, id="the next attempt comes when the circuit is half open"),
        pytest.param(
            40, 0, 40 - SLACK_S - 1 - LAST_TRY_S, False, id="the next attempt comes before the end of the run's time"
        ),
        pytest.param(LAST_TRY_S + SLACK_S + 1, 0, 0, True, id="final if no time is left"),
    ],
)
async def test_a_call_stopped_by_the_circuit_is_retried_when_the_circuit_allows_it(
    shared: WorkerBreakers, clock: Clock, left_s: float, seconds: float, expected_s: float, is_final: bool
) -> None:
    conversations = Conversations(NoHistory())
    conversations.keep_setup(SETUP)
    reason = ReasonActivities(guarded_models(shared, failing("ServerError")), conversations).reason
    request = a_request((user("task", pinned=True),), SETUP)
    failures: list[ApplicationError] = []
    for _ in range(4):
        clock.seconds = seconds if len(failures) == 3 else 0
        with pytest.raises(ApplicationError) as caught:
            await Beats(left_s=left_s).run(reason, request)
        failures.append(caught.value)
    last = failures[-1]
    assert [failure.type for failure in failures] == ["ServerError"] * 3 + [CIRCUIT_OPEN]
    assert last.non_retryable is is_final
    assert last.next_retry_delay is not None
    assert abs(last.next_retry_delay - timedelta(seconds=expected_s)) < timedelta(seconds=1)
