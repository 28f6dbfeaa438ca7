"""The text before a rewind asks about effects that cannot be undone."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import StringIO
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.steer import rewind as command
from orga.client.cli.steer.rewind import rewind_plan_lines
from orga.client.history.chain import Boundary
from orga.client.past.dropped import Effect, LiveDelegate, SentIntervention
from orga.client.past.rewind import RewindPlan
from tests.support.values.core import T0

BOUNDARY = Boundary("agent-1", "r", 1, 9, T0)
PLAN = RewindPlan(
    BOUNDARY,
    interventions=(SentIntervention("steer", T0, "faster"), SentIntervention("abort", T0, "enough")),
    effects=(Effect(2, "pay", T0, "pay 7"),),
    delegates=(LiveDelegate("agent-1.2.0", 2, T0),),
)


def test_a_plan_lists_what_happens_to_everything_later() -> None:
    lines = rewind_plan_lines(PLAN, keeps=True)
    assert [line.partition(":")[0] for line in lines] == [
        "delivered again",
        "left out",
        "done already, not undone",
        "aborted first",
    ]
    assert lines[-1].endswith("iteration 2, delegate agent-1.2.0, still running")


PAID = Effect(2, "pay", T0, "pay 900", is_irreversible=True, arguments='{"cents":900}', outcome="ok")
HANDED_ON = Effect(3, "delegate", T0, "delegate agent-1.3.0", is_irreversible=True, outcome="ended")
SAVED = Effect(2, "save", T0, "save a", arguments="{}", outcome="ok")


def test_an_irreversible_call_is_shown_with_its_arguments_and_outcome() -> None:
    plan = RewindPlan(BOUNDARY, (), (PAID, SAVED, HANDED_ON))
    paid, saved, handed_on = rewind_plan_lines(plan, keeps=True)
    assert paid.startswith("done already, NOT UNDONE, irreversible: ")
    assert paid.endswith('iteration 2, pay {"cents":900}: ok')
    assert saved.endswith("iteration 2, save a")
    assert handed_on.endswith("iteration 3, delegate agent-1.3.0: ended")
    assert plan.irreversible_calls == ('pay {"cents":900}: ok', "delegate agent-1.3.0: ended")


@pytest.mark.parametrize(
    ("effects", "yes", "is_rewound"),
    [
        pytest.param((PAID,), False, False, id="an irreversible call without --yes"),
        pytest.param((HANDED_ON,), False, False, id="an irreversible delegation without --yes"),
        pytest.param((PAID,), True, True, id="an irreversible call with --yes"),
        pytest.param((SAVED,), False, True, id="no irreversible call"),
    ],
)
async def test_without_a_terminal_a_rewind_past_irreversible_calls_needs_yes(
    monkeypatch: pytest.MonkeyPatch, effects: tuple[Effect, ...], yes: bool, is_rewound: bool
) -> None:
    carried_out: list[RewindPlan] = []

    @asynccontextmanager
    async def run_context(named: str, config: object) -> AsyncGenerator[Any]:
        yield SimpleNamespace(client=Mock(), run=Mock()), named

    async def plan_rewind(*_: object) -> RewindPlan:
        return RewindPlan(BOUNDARY, (), effects)

    async def execute_rewind(client: object, plan: RewindPlan, **_: object) -> str:
        carried_out.append(plan)
        return "r2"

    async def note_missing_worker(*_: object) -> None:
        pass

    for replaced in (run_context, plan_rewind, execute_rewind, note_missing_worker):
        monkeypatch.setattr(command, replaced.__name__, replaced)
    monkeypatch.setattr("sys.stdin", StringIO())
    if is_rewound:
        await command.rewind("agent-1", to_iteration=1, yes=yes, json=True)
    else:
        with pytest.raises(UsageError, match="add --yes"):
            await command.rewind("agent-1", to_iteration=1, yes=yes, json=True)
    assert len(carried_out) == is_rewound
