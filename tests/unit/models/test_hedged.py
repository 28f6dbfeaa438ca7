"""A question that the server lost is asked again; the first answer counts, and nothing is left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from orga.client.runs.exchange import first_answer

WITHIN, AFTER = timedelta(seconds=10), timedelta(seconds=0)

Ask = Callable[[timedelta], Awaitable[str]]


async def lost(within: timedelta) -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def answered(within: timedelta) -> str:
    return "answer"


async def turned_away(within: timedelta) -> str:
    raise ValueError("no")


async def turned_away_late(within: timedelta) -> str:
    await asyncio.sleep(0.05)
    raise ValueError("late")


def in_turn(*asks: Ask) -> tuple[Ask, list[timedelta]]:
    """Return a question that goes to each of them in turn, and how long each was given."""
    given: list[timedelta] = []

    async def ask(within: timedelta) -> str:
        given.append(within)
        return await asks[len(given) - 1](within)

    return ask, given


async def test_who_answers_is_asked_once() -> None:
    ask, given = in_turn(answered)
    assert (await first_answer(ask, WITHIN), given) == ("answer", [WITHIN])


async def test_a_lost_question_is_asked_again_within_what_is_left() -> None:
    ask, given = in_turn(lost, answered)
    before = asyncio.all_tasks()
    assert await first_answer(ask, WITHIN, timedelta(seconds=0.05)) == "answer"
    assert given == [WITHIN, WITHIN - timedelta(seconds=0.05)]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before, "the other is cancelled"


async def test_the_one_that_fails_leaves_it_to_the_other() -> None:
    ask, _ = in_turn(turned_away_late, answered)
    assert await first_answer(ask, WITHIN, AFTER) == "answer"


async def test_what_is_refused_at_once_is_not_asked_again() -> None:
    ask, given = in_turn(turned_away)
    with pytest.raises(ValueError, match="no"):
        await first_answer(ask, WITHIN)
    assert given == [WITHIN]


async def test_where_none_answers_the_first_reason_is_told() -> None:
    ask, _ = in_turn(turned_away_late, turned_away)
    with pytest.raises(ValueError, match="late"):
        await first_answer(ask, WITHIN, AFTER)
