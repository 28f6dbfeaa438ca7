"""Settings that are saved, refused, and continued as new. Their histories are kept apart, because they are not runs."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

from temporalio.client import Client, WorkflowHistory

from orga.client.errors import InvalidSettings
from orga.testing import ScriptedModel, answers
from orga.workflows.types.names import SETTINGS_WORKFLOW
from orga.workflows.types.settings import SettingsState, settings_id
from tests.support.hold import wait_until
from tests.support.runs.loop import histories_of
from tests.support.runs.questions import send_update
from tests.support.runs.settings import a_desk

FOLDER = Path(__file__).parent / "settings"

LIMIT = "agents.default.config.max_iterations"


QUEUE = "saved-settings"


async def saved(client: Client) -> list[WorkflowHistory]:
    """Return the histories of both segments. Two people save at the same time, before any worker runs."""
    full = SettingsState(full_events=40, full_bytes=1_000_000)
    handle = await client.start_workflow(SETTINGS_WORKFLOW, full, id=settings_id(QUEUE), task_queue=QUEUE)
    sets = ({"version": 0, "values": {LIMIT: number}, "by": "ann"} for number in (7, 8))
    together = [asyncio.ensure_future(send_update(handle, "save", each)) for each in sets]
    await asyncio.sleep(0.5)
    with tempfile.TemporaryDirectory() as folder:
        async with a_desk(client, ScriptedModel([answers("done")]), Path(folder), queue=QUEUE) as desk:
            await asyncio.gather(*together, return_exceptions=True)
            with suppress(InvalidSettings):
                await desk.save({LIMIT: 0, "policy.engine": "allow"})
            await handle.signal("anything", {"a": 1})
            await desk.save({LIMIT: 9, "goals.prompts.planning": "{{ goal }} {{ skills }} {{ answer_form }}"})

            async def has_continued() -> bool:
                await desk.save({})
                return len(await histories_of(client, settings_id(QUEUE))) > 1

            await wait_until(has_continued)
            await desk.save({LIMIT: 10}, by="bob")
            return await histories_of(client, settings_id(QUEUE))
