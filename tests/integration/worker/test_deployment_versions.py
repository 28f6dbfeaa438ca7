"""Two workers of two versions on a real server: a run stays on its version, or moves when it continues as new."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client

from orga.client.past.rewind import rewind
from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.delegates import PAIR, Cast, delegates
from tests.support.runs.loop import WORKER_FACTS, Loop, a_worker, histories_of
from tests.support.runs.rewound import wait_for_rewound as rewound
from tests.support.runs.versions import Deployment, a_deployment, builds_of

Steps = Sequence[Step] | Cast


@dataclass
class Fleet:
    """Workers of versions 1 and 2 of a deployment, on one task queue. Version 1 is current."""

    deployment: Deployment
    loop: Loop
    """Starts and follows runs on either worker."""
    hold: Hold = field(default_factory=Hold)
    """Blocks the tool `wait` of both workers."""


@asynccontextmanager
async def a_fleet(
    client: Client, one: Steps, two: Steps, *, is_versioned: bool = True, roll_over_events: int = 3_500, **options: Any
) -> AsyncGenerator[Fleet]:
    """Run both workers with these scripts. The older one may have no version."""
    queue, deployment = f"test-{uuid.uuid4()}", a_deployment(client)
    old, new = (
        Loop(client, queue, given if isinstance(given, Cast) else ScriptedModel(given, repeats=True))
        for given in (one, two)
    )
    fleet = Fleet(deployment, old)
    tools = FakeTool("wait", lambda arguments, context: fleet.hold.then("waited")), FakeTool("look")
    options["setup"] = WORKER_FACTS.model_copy(update={"roll_over_events": roll_over_events})
    first = deployment.version("1") if is_versioned else None
    async with (
        a_worker(old, *tools, **options, version=first),
        a_worker(new, *tools, **options, version=deployment.version("2")),
    ):
        if is_versioned:
            await deployment.make_current("1")
        yield fleet


async def test_a_run_ends_on_the_version_on_which_it_started(client: Client) -> None:
    async with a_fleet(client, [calls("wait"), calls("look"), answers("one")], [answers("two")]) as fleet:
        begun = await fleet.loop.start()
        await fleet.hold.reached()
        await fleet.deployment.make_current("2")
        later = await fleet.loop.run()
        fleet.hold.go.set()
        ended = await fleet.loop.ended(begun)

    assert (later.result.output, builds_of(later.history)) == ("two", {"2"})
    assert (ended.result.output, builds_of(ended.history)) == ("one", {"1"})


async def test_a_run_that_continues_as_new_moves_to_the_current_version(client: Client) -> None:
    steps: Steps = [calls("wait"), *[calls("look")] * 9]
    async with a_fleet(client, steps, [calls("look"), answers("two")], roll_over_events=40) as fleet:
        begun = await fleet.loop.start()
        await fleet.hold.reached()
        await fleet.deployment.make_current("2")
        fleet.hold.go.set()
        ended = await fleet.loop.ended(begun)

    assert [builds_of(history) for history in ended.histories] == [{"1"}, {"2"}]
    assert ended.result.output == "two"
    reported = [entry.data for entry in ended.journal if entry.event == "BuildChanged"]
    assert reported == [{"before": "1", "build": "2"}]


async def test_a_run_that_continues_as_new_stays_if_nothing_newer_is_deployed(client: Client) -> None:
    steps: Steps = [*[calls("look")] * 5, answers("one")]
    async with a_fleet(client, steps, [answers("two")], roll_over_events=40) as fleet:
        ended = await fleet.loop.run()

    assert [builds_of(history) for history in ended.histories] == [{"1"}, {"1"}]
    assert ended.result.output == "one"


async def test_a_run_without_a_version_moves_to_the_first_current_version(client: Client) -> None:
    """So the code of the first version has to replay runs that started before it."""
    async with a_fleet(client, [calls("wait")], [answers("two")], is_versioned=False) as fleet:
        begun = await fleet.loop.start()
        await fleet.hold.reached()
        await fleet.deployment.make_current("2")
        fleet.hold.go.set()
        ended = await fleet.loop.ended(begun)

    assert (ended.result.output, builds_of(ended.history)) == ("two", {"", "2"})


async def test_a_delegate_uses_the_version_of_its_parent(client: Client) -> None:
    casts = [Cast({"lead": [calls("wait"), delegates("helper"), answers(n)], "helper": [answers(n)]}) for n in "12"]
    agents = PAIR | {"lead": PAIR["lead"].model_copy(update={"tools": ("wait",)})}
    async with a_fleet(client, *casts, agents=agents) as fleet:
        begun = await fleet.loop.start({"task": "lead", "agent": "lead"})
        await fleet.hold.reached()
        await fleet.deployment.make_current("2")
        fleet.hold.go.set()
        ended = await fleet.loop.ended(begun)
        [child] = await histories_of(client, f"{begun.id}.2.0")

    assert (ended.result.output, builds_of(ended.history), builds_of(child)) == ("1", {"1"}, {"1"})


async def test_a_rewound_run_stays_on_its_version(client: Client) -> None:
    async with a_fleet(client, [calls("look"), answers("one"), answers("again")], [answers("two")]) as fleet:
        first = await fleet.loop.run()
        await fleet.deployment.make_current("2")
        again = await rewound(client, await rewind(client, first.handle.id, 1))

    assert (again.result.output, builds_of(again.history)) == ("again", {"1"})
