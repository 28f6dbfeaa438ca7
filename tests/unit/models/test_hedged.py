"""A query that the server lost is sent again. The first answer counts, and no task is left over."""

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
    """Return a query that goes to each function in turn, and the list of time limits that each got."""
    given: list[timedelta] = []

    async def ask(within: timedelta) -> str:
        given.append(within)
        return await asks[len(given) - 1](within)

    return ask, given


async def test_a_query_that_is_answered_is_sent_once() -> None:
    ask, given = in_turn(answered)
    assert (await first_answer(ask, WITHIN), given) == ("answer", [WITHIN])


async def test_a_lost_query_is_sent_again_within_the_remaining_time() -> None:
    ask, given = in_turn(lost, answered)
    before = asyncio.all_tasks()
    assert await first_answer(ask, WITHIN, timedelta(seconds=0.05)) == "answer"
    assert given == [WITHIN, WITHIN - timedelta(seconds=0.05)]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before, "the other task is cancelled"


async def test_if_one_query_fails_the_other_can_still_answer() -> None:
    ask, _ = in_turn(turned_away_late, answered)
    assert await first_answer(ask, WITHIN, AFTER) == "answer"


async def test_a_query_that_is_refused_at_once_is_not_sent_again() -> None:
    ask, given = in_turn(turned_away)
    with pytest.raises(ValueError, match="no"):
        await first_answer(ask, WITHIN)
    assert given == [WITHIN]


async def test_if_all_queries_fail_the_first_error_is_raised() -> None:
    ask, _ = in_turn(turned_away_late, turned_away)
    with pytest.raises(ValueError, match="late"):
        await first_answer(ask, WITHIN, AFTER)
