"""`orga conversation`: the messages as the model would see them."""

from pathlib import Path

from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json, RunId
from client.cli.output import json_result, result
from client.cli.session import session
from client.errors import NoAnswer
from client.pollers import pollers
from workflows.decisions.summaries import call_summary
from workflows.types.status import ShownMessage


def conversation(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show what the model would see now: instructions, task, calls, results. A worker has to answer.

    Example: orga conversation ID --json
    """
    return completed(_conversation(run, config, as_json=json))


async def _conversation(run_id: str, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        run = here.run(run_id)
        queue = (await run.describe()).task_queue
        if not await pollers(here.client, queue):
            raise NoAnswer(queue)
        messages = await run.conversation()
    if as_json:
        json_result([message.model_dump(mode="json") for message in messages])
    else:
        result("\n\n".join(_shown(message) for message in messages))
    return 0


def _shown(message: ShownMessage) -> str:
    source = f" {message.tool} {message.call_id}" if message.tool else ""
    head = f"── {message.role}{source}{' (error)' if message.is_error else ''}"
    calls = [f"→ {call_summary(call, None)}  {call.call_id}" for call in message.calls]
    return "\n".join([head, *([message.text] if message.text else []), *calls])
