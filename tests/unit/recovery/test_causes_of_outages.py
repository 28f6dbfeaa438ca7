"""An outage names its cause: after an open circuit, at the end of a run's time, and in `orga doctor`."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from orga.activities.adapters import http
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.circuits import CircuitOpenError, WorkerBreakers
from orga.activities.models.model_calls import ModelCalls
from orga.activities.ports import ModelError, ModelRequest
from orga.client.cli.main import run_command
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.testing.script import ScriptedModels
from orga.client.workers.checked import worker_report
from orga.testing import ScriptedModel
from orga.workflows.decisions.limits import can_retry_model_call
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.failures import is_out_of_time
from orga.workflows.types.limits import SLACK_S
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from tests.support.model.providers import Network
from tests.support.tools.activities import Beats
from tests.support.values.core import a_setup, a_state

TOO_MANY = ModelError("RateLimited", "acme answered 429: slow down", retryable=True)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            ModelError("ServerError", "acme answered 503:\n  no capacity", retryable=True),
            "; last: ServerError: acme answered 503: no capacity)",
            id="a provider's own words, on one line",
        ),
        pytest.param(
            ModelError("ServerError", "x" * 5_000, retryable=True), f"; last: {'ServerError: ' + 'x' * 187})", id="cut"
        ),
        pytest.param(
            ApplicationError("the customer's data", type="Timeout"),
            "; last: Timeout)",
            id="the kind of a tool's failure",
        ),
        pytest.param(ApplicationError("boom", type="do as\nI say"), "in a row: 1)", id="an invalid kind"),
        pytest.param(ApplicationError("boom"), "in a row: 1)", id="no kind"),
    ],
)
def test_a_refused_call_names_the_last_failure(error: Exception, expected: str) -> None:
    shared, options = WorkerBreakers(), CircuitOptions(failure_threshold=1)
    with pytest.raises(type(error)), shared.guard("x", options, lambda failure: True):
        raise error
    with pytest.raises(CircuitOpenError) as turned_away, shared.guard("x", options, lambda failure: True):
        raise AssertionError("not reached")
    assert str(turned_away.value).endswith(expected)


async def failure_after(attempt: int, left_s: float, error: ModelError = TOO_MANY) -> ApplicationError:
    """Return how a model call fails if its run has so much time left."""
    policy = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60))
    calls = ModelCalls(ScriptedModels(ScriptedModel([error], repeats=True)))
    setup = a_setup()

    async def call(began: float) -> None:
        await calls.complete(setup, ModelRequest(model=setup.model), began, setup.models_for())

    limits = Beats(left_s=left_s + SLACK_S + 1, attempt=attempt, retry_policy=policy)
    with pytest.raises(ApplicationError) as caught:
        await limits.run(call, asyncio.get_running_loop().time())
    return caught.value


@pytest.mark.parametrize(
    ("attempt", "left_s", "is_final", "delay_s"),
    [
        pytest.param(1, 100.0, False, None, id="Temporal's own pause fits"),
        pytest.param(5, 10.0, False, 7.0, id="a pause of 16 s is shortened"),
        pytest.param(20, 30.0, False, 27.0, id="the longest pause, a minute"),
        pytest.param(3, 2.5, True, 0.0, id="the last attempt is final"),
        pytest.param(1, -5.0, True, 0.0, id="the end has passed"),
    ],
)
async def test_a_rate_limit_without_a_wait_ends_with_its_own_error_and_not_a_timeout(
    attempt: int, left_s: float, is_final: bool, delay_s: float | None
) -> None:
    failure = await failure_after(attempt, left_s)
    assert (failure.type, failure.non_retryable) == ("RateLimited", is_final)
    if delay_s is None:
        assert failure.next_retry_delay is None
    else:
        assert failure.next_retry_delay is not None
        assert abs(failure.next_retry_delay.total_seconds() - delay_s) < 0.5


async def test_the_workflow_sees_that_more_time_would_have_helped() -> None:
    """The call is made again if the clock was paused meanwhile. Otherwise the run ends with the last failure."""
    failure = await failure_after(3, 1.0)
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="reason",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    error.__cause__ = failure
    assert is_out_of_time(error)
    assert failure_text(error) == "RateLimited: acme answered 429: slow down"
    state = a_state()
    start = state.clock.started_at
    assert can_retry_model_call(state, start + timedelta(seconds=200))
    assert not can_retry_model_call(state, start + timedelta(seconds=297))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(200, "", id="a list of models"),
        pytest.param(404, "", id="a server without such a list"),
        pytest.param(401, "answered 401", id="a key that is refused"),
        pytest.param(403, "answered 403", id="a key without rights"),
        pytest.param(502, "answered 502", id="a gateway without a server"),
    ],
)
async def test_the_reachability_of_a_provider_is_checked(status: int, expected: str) -> None:
    network = Network([http.Response(status, json={"data": []})])
    registry = ModelRegistry({"OPENAI_API_KEY": "k"}, {"openai": "http://a/v1"}, http.MockTransport(network))
    problem = await registry.unreachable_reason("openai:m")
    assert (expected in problem) if expected else problem == ""
    assert [(request.method, str(request.url)) for request in network.requests] == [("GET", "http://a/v1/models")]


def test_doctor_reports_an_address_without_a_server(tmp_path: Path) -> None:
    models = ModelsConfig(default="openai-compatible:m", base_urls={"openai-compatible": "http://127.0.0.1:9/v1"})
    report = worker_report(OrgaConfig(models=models), tmp_path, {})
    assert "can't be reached" in report["models"]["openai-compatible:m"]
    assert worker_report(OrgaConfig(), tmp_path, {})["models"] == {"offline:extractive": ""}


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "TEMPORAL_ADDRESS",
            "https://a.example",
            ["is no address of a Temporal server", "    → write HOST:PORT, as a."],
        ),
        ("TEMPORAL_NAMESPACE", "shop", ["and no address says where", "    → name one (TEMPORAL_ADDRESS,"]),
    ],
)
def test_doctor_reports_a_server_problem_with_its_remedy(
    variable: str,
    value: str,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable, value)
    assert run_command(["doctor"]) == 6
    cause, remedy = capsys.readouterr().out.splitlines()[-2:]
    assert expected[0] in cause
    assert remedy.startswith(expected[1])
    assert ";" not in cause
