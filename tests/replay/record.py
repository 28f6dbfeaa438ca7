"""Records the histories that `test_histories.py` replays: `python -m tests.replay.record [NAME ...]`.

A released version's histories are never recorded anew: what it wrote has to replay for ever.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment

from client.converter import data_converter
from tests.conftest import SERVER_ARGUMENTS
from tests.support.loop import WORKER_FACTS, Deny, FakeTool, Loop, Ran, a_loop
from tests.support.scripted import ScriptedProvider, Step, answers, calls
from tests.support.server import temporal_cli
from workflows.types.messages import Reply

FOLDER = Path(__file__).parent / "histories"

Play = Callable[[Loop], Awaitable[Ran]]


async def _plain(loop: Loop) -> Ran:
    return await loop.run("do it")


async def _limited(loop: Loop) -> Ran:
    return await loop.run("do it", max_iterations=3)


async def _steered(loop: Loop) -> Ran:
    handle = await loop.start("do it")
    await handle.signal("steer", "look closer")
    await handle.signal("pause")
    await handle.signal("add_context", "it is Monday")
    await handle.signal("resume")
    return await loop.ended(handle)


async def _aborted(loop: Loop) -> Ran:
    handle = await loop.start("do it")
    await asyncio.wait_for(_started.wait(), 30)
    await handle.signal("abort", "enough")
    return await loop.ended(handle)


_started = asyncio.Event()


async def _waits(arguments: dict[str, Any], context: object) -> str:
    _started.set()
    await asyncio.sleep(3_600)
    return "never"


_LOOK = FakeTool("look", lambda arguments, context: "seen " * 20)
_WAIT = FakeTool("wait", _waits, effect="irreversible")
_DELETE = FakeTool("delete")
_REFUSAL = Reply(text="no", finish="refusal")
_HALF = Reply(text="half ", finish="length")

SCENARIOS: dict[str, tuple[list[Step], Play]] = {
    "answer": ([answers("42")], _plain),
    "tools-and-a-denial": ([calls("look", "delete", text="I look."), calls("look"), answers("done")], _plain),
    "steered-and-paused": ([calls("look"), answers("done")], _steered),
    "aborted-in-a-tool": ([calls("look", "wait")], _aborted),
    "repaired": (
        [_REFUSAL, Reply(text=""), calls("look"), Reply(text="half ", finish="length"), answers("whole")],
        _plain,
    ),
    "an-error-after-repairs": ([Reply(text="")], _plain),
    "iteration-limit": ([calls("look")], _limited),
    "rolled-over": ([*[calls("look")] * 6, answers("done")], _plain),
}


async def _record(path: str, names: list[str]) -> None:
    environment = await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=path,
        data_converter=data_converter,
        dev_server_extra_args=SERVER_ARGUMENTS,
        identity="recorder",
    )
    async with environment:
        for name in names:
            steps, play = SCENARIOS[name]
            facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40}) if name == "rolled-over" else WORKER_FACTS
            provider, engine = ScriptedProvider(steps), Deny("delete")
            async with a_loop(
                environment.client, provider, _LOOK, _WAIT, _DELETE, engine=engine, setup=facts, task_queue="recorded"
            ) as loop:
                _write(name, await play(loop))


def _write(name: str, ran: Ran) -> None:
    for number, history in enumerate(ran.histories, start=1):
        suffix = f"-{number}" if len(ran.histories) > 1 else ""
        path = FOLDER / f"{name}{suffix}.json"
        path.write_text(json.dumps(json.loads(history.to_json()), indent=1) + "\n")
        print(f"{path.name}: {len(history.events)} events")


if __name__ == "__main__":
    asyncio.run(_record(str(temporal_cli()), sys.argv[1:] or list(SCENARIOS)))
    sys.stdout.flush()
    os._exit(0)  # a clean exit of the interpreter can abort in the SDK's threads (sdk-python issue 300)
