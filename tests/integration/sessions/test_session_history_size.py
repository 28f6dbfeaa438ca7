"""The history size of session turns: each adds as much as the one before, however long the conversation is."""

from itertools import pairwise
from typing import NamedTuple

from temporalio.client import Client

from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.runs.loop import a_loop, histories_of
from tests.support.runs.sessions import begin, close_session

TURNS = 6
SAID = "lorem ipsum dolor sit amet " * 20
MAX_GROWTH = 1.05
"""Ratio of the last third to the second: counters gain a digit now and then, and progress is one event."""


class Size(NamedTuple):
    """The size of a history, as the server counts it."""

    events: int
    size: int


async def test_a_turn_adds_as_much_to_a_long_session_as_to_a_short_one(client: Client) -> None:
    """Messages, calls and results have 500 bytes each. If each turn repeated them, it would add more each time."""
    model = ScriptedModel([calls("look", n=1), answers(SAID)] * (3 * TURNS))
    async with a_loop(client, model, FakeTool("look", lambda _, __: SAID)) as loop:
        session = await begin(loop)
        sizes = list[Size]()
        for turn in range(1, 3 * TURNS + 1):
            await session.send(f"{turn}: {SAID}")
            if turn % TURNS == 0:
                sizes.append(await _size(client, session.id))
        await close_session(session)
        runs = len(await histories_of(client, session.id))
    added = [Size(*(b - a for a, b in zip(one, other, strict=True))) for one, other in pairwise(sizes)]
    assert runs == 1
    assert added[1].size < added[0].size * MAX_GROWTH
    assert added[1].events <= added[0].events * MAX_GROWTH


async def _size(client: Client, session: str) -> Size:
    info = (await client.get_workflow_handle(session).describe()).raw_description.workflow_execution_info
    return Size(info.history_length, info.history_size_bytes)
