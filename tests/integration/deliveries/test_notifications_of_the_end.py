"""Notifications of the end: which runs send one, and what guidance does while one is being sent."""

from temporalio.client import Client

from orga.activities.ports import RunKey
from orga.client.past.fork import fork
from orga.testing import answers
from orga.workflows.types.questions import Notification
from tests.support.hold import Hold
from tests.support.runs.delegates import a_cast, agent, delegates, run_lead
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.rewound import wait_for_rewound

TELLS_THE_END = WORKER_FACTS.model_copy(update={"notify": ("ended",)})


class BlockingNotifier:
    """A notifier that blocks in the first message until it is released."""

    def __init__(self) -> None:
        self.sent: list[Notification] = []
        self.first = Hold()

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Keep one message."""
        self.sent.append(notification)
        await self.first.then(None)


async def test_guidance_during_the_end_notification_resumes_the_run(client: Client) -> None:
    reported = BlockingNotifier()
    again = Hold()
    steps = [answers("first"), again.step(answers("second"))]
    async with a_loop(client, steps, setup=TELLS_THE_END, notifier=reported) as loop:
        handle = await loop.start()
        await reported.first.reached()
        await handle.signal("steer", "wait, one more thing")
        assert (await handle.query("status"))["phase"] == "done"
        reported.first.go.set()
        await again.reached()
        assert (await handle.query("status"))["phase"] == "reasoning"
        again.go.set()
        ran = await loop.ended(handle)

    assert (ran.result.output, ran.result.iterations) == ("second", 2)
    assert len({message.message_id for message in reported.sent}) == len(reported.sent) == 2
    assert ran.events.count("Terminated") == 1


async def test_a_fork_of_a_delegate_reports_its_end_because_it_has_no_parent(client: Client) -> None:
    reported = BlockingNotifier()
    reported.first.go.set()
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper")}
    scripts = {"lead": [delegates("helper"), answers("done")], "helper": [answers("one"), answers("two")]}
    async with a_cast(client, agents, scripts, setup=TELLS_THE_END, notifier=reported) as (loop, _):
        first = await run_lead(loop)
        before = len(reported.sent)
        await wait_for_rewound(client, await fork(client, f"{first.handle.id}.1.0", 1, task="more"))

    assert (before, len(reported.sent)) == (1, 2)
