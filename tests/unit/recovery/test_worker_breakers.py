"""Circuits shared by the runs of a worker: which failures count, which calls may try, and their metrics."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Barrier
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from orga.activities import circuits
from orga.activities.circuits import CircuitOpenError, ToolCircuits, WorkerBreakers, monotonic_time
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.tool_calls.breakers import Breaker, BreakerOptions
from orga.workflows.types.tool_calls.tools import CALL_STOPPED, WORKER_SHUTDOWN
from tests.support.runs.circuits import OPTIONS, Clock, clock, shared
from tests.support.values.core import a_spec
from tests.support.web.telemetry import fresh_globals

__all__ = ["clock", "fresh_globals", "shared"]


def guard(shared: WorkerBreakers) -> AbstractContextManager[None]:
    """Return the guard of a call of `search`. An OSError counts."""
    return shared.guard("search", OPTIONS, lambda error: isinstance(error, OSError))


def call(shared: WorkerBreakers, error: BaseException | None = None) -> None:
    """Make a call with this outcome."""
    with guard(shared):
        if error is not None:
            raise error


def fail(shared: WorkerBreakers, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(OSError, match="down"):
            call(shared, OSError("down"))


def state_of(shared: WorkerBreakers) -> str:
    return shared.circuit("search").state


def test_the_circuit_opens_at_the_threshold_and_allows_a_trial_call_after_its_time(
    shared: WorkerBreakers, clock: Clock
) -> None:
    fail(shared, 2)
    assert state_of(shared) == "closed"
    fail(shared)
    clock.seconds = 59.5
    reported = r"search is left alone for 1 s more \(failures in a row: 3; last: OSError\)"
    with pytest.raises(CircuitOpenError, match=reported) as turned_away:
        call(shared)
    assert turned_away.value.wait_s == 0.5
    clock.seconds = 60
    call(shared)
    assert shared.circuit("search") == Breaker()


def test_a_failed_trial_call_reopens_the_circuit(shared: WorkerBreakers, clock: Clock) -> None:
    fail(shared, 3)
    clock.seconds = 60
    fail(shared)
    clock.seconds = 119
    with pytest.raises(CircuitOpenError):
        call(shared)
    clock.seconds = 120
    call(shared)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("bad"), id="the call's own fault"),
        pytest.param(asyncio.CancelledError(), id="cancelled"),
    ],
)
def test_a_failure_that_does_not_count_returns_its_permit(
    shared: WorkerBreakers, clock: Clock, error: BaseException
) -> None:
    for _ in range(9):
        with pytest.raises(type(error)):
            call(shared, error)
    assert state_of(shared) == "closed"
    fail(shared, 3)
    clock.seconds = 60
    with pytest.raises(type(error)):
        call(shared, error)
    assert shared.circuit("search").trying == 0
    call(shared)
    assert state_of(shared) == "closed"


def test_a_refused_call_does_not_count(shared: WorkerBreakers) -> None:
    fail(shared, 3)
    for _ in range(5):
        with pytest.raises(CircuitOpenError):
            call(shared)
    assert shared.circuit("search").failures == 3


def test_during_a_trial_call_others_are_refused(shared: WorkerBreakers, clock: Clock) -> None:
    fail(shared, 3)
    clock.seconds = 60
    with guard(shared), pytest.raises(CircuitOpenError, match="while another call tries it") as turned_away:
        call(shared)
    assert turned_away.value.wait_s == 0
    call(shared)


def test_a_long_trial_call_does_not_block_other_trial_calls(shared: WorkerBreakers, clock: Clock) -> None:
    fail(shared, 3)
    clock.seconds = 60
    with guard(shared):
        clock.seconds = 119
        with pytest.raises(CircuitOpenError):
            call(shared)
        clock.seconds = 120
        with guard(shared):
            clock.seconds = 179
            with pytest.raises(CircuitOpenError):
                call(shared)
            clock.seconds = 180
            call(shared)
            assert shared.circuit("search") == Breaker()
    assert shared.circuit("search") == Breaker()
    fail(shared, 3)
    assert state_of(shared) == "open"


@pytest.mark.parametrize(
    "error", [pytest.param(OSError("down"), id="failed"), pytest.param(asyncio.CancelledError(), id="cancelled")]
)
def test_a_call_older_than_the_opening_uses_no_permit_of_trial_calls(
    shared: WorkerBreakers, clock: Clock, error: BaseException
) -> None:
    """Calls of many runs may last longer than the recovery time."""
    old = guard(shared)
    old.__enter__()
    fail(shared, 3)
    clock.seconds = 60
    with guard(shared):
        old.__exit__(type(error), error, None)
        assert shared.circuit("search").trying == 1
        with pytest.raises(CircuitOpenError):
            call(shared)
    assert state_of(shared) == "closed"


def test_circuits_are_independent(shared: WorkerBreakers) -> None:
    fail(shared, 3)
    with shared.guard("read", OPTIONS, lambda error: True):
        pass
    assert (state_of(shared), shared.circuit("read").state) == ("open", "closed")


def test_only_the_newest_circuits_are_kept(shared: WorkerBreakers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "MAX_CIRCUITS", 2)
    for name in ("a", "b", "c"):
        with pytest.raises(OSError, match="down"), shared.guard(name, OPTIONS, lambda error: True):
            raise OSError("down")
    assert [shared.circuit(name).failures for name in ("a", "b", "c")] == [0, 1, 1]


def test_threads_share_one_permit(shared: WorkerBreakers, clock: Clock) -> None:
    fail(shared, 3)
    clock.seconds = 60
    together = Barrier(8, timeout=30)

    def attempt(_: int) -> bool:
        together.wait()
        try:
            with shared.guard("search", OPTIONS, lambda error: False):
                together.wait()
        except CircuitOpenError:
            together.wait()
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


def test_the_clock_of_a_worker_never_goes_back() -> None:
    assert monotonic_time() <= monotonic_time()


@pytest.mark.usefixtures("fresh_globals")
def test_an_opened_circuit_is_counted_by_tool_or_provider(shared: WorkerBreakers) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    metrics.set_meter_provider(meters)
    for name in ("search", "provider:acme"):
        for _ in range(5):
            with pytest.raises((OSError, CircuitOpenError)), shared.guard(name, OPTIONS, lambda error: True):
                raise OSError("down")
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        (dict(point.attributes or {}), getattr(point, "value", None))
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == names.CIRCUITS_OPENED
        for point in metric.data.data_points
    ]
    assert points == [
        ({names.TOOL: "search", names.CIRCUIT_SCOPE: "worker"}, 1),
        ({names.PROVIDER: "acme", names.CIRCUIT_SCOPE: "worker"}, 1),
    ]
    meters.shutdown()


class Ending(ActivityInboundInterceptor):
    """An activity that ends with this error, after a cancellation for these reasons."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        raise self._error


CANCELLED = asyncio.CancelledError()


@pytest.mark.parametrize(
    ("error", "details", "expected"),
    [
        pytest.param(ApplicationError("down"), None, 1, id="a retryable failure"),
        pytest.param(ApplicationError("no such page", non_retryable=True), None, 0, id="the call's own fault"),
        pytest.param(ApplicationError("odd", type="Odd"), None, 0, id="final by the tool's options"),
        pytest.param(ApplicationError("stopped", type=WORKER_SHUTDOWN), None, 0, id="the worker was stopped"),
        pytest.param(ApplicationError("paused", type=CALL_STOPPED), None, 0, id="the activity was paused"),
        pytest.param(CANCELLED, ActivityCancellationDetails(timed_out=True), 1, id="cancelled by a time-out"),
        pytest.param(CANCELLED, ActivityCancellationDetails(cancel_requested=True), 0, id="cancelled by its run"),
        pytest.param(CANCELLED, ActivityCancellationDetails(not_found=True), 0, id="its run has ended"),
        pytest.param(CANCELLED, ActivityCancellationDetails(worker_shutdown=True), 0, id="cancelled by the worker"),
        pytest.param(KeyError("ours"), None, 0, id="a bug of ours"),
    ],
)
async def test_only_some_failures_count_against_a_tool(
    shared: WorkerBreakers, error: BaseException, details: ActivityCancellationDetails | None, expected: int
) -> None:
    spec = a_spec("unknown", breaker=BreakerOptions(scope="worker"), non_retryable=("Odd",))
    guarded = ToolCircuits(shared, [spec]).intercept_activity(Ending(error))
    environment = ActivityEnvironment()

    async def run() -> None:
        if details is not None:
            environment.cancel(details)
        await guarded.execute_activity(ExecuteActivityInput(run, (), None, {}))

    with pytest.raises(type(error)):
        await environment.run(run)
    assert shared.circuit("unknown").failures == expected


def test_without_shared_circuits_there_is_no_interceptor(shared: WorkerBreakers) -> None:
    plain = Ending(KeyError())
    assert ToolCircuits(shared, [a_spec("read")]).intercept_activity(plain) is plain
