"""Replies that are nearly JSON: what is put right, what is told back, and that no text holds a worker up."""

import json
import time

import pytest

from orga.activities.adapters.repaired_json import MAX_CHARS, repaired_json
from orga.workflows.types.json_text import find_json_object
from tests.support.values.corpora import Case, cases, filled

DEEP = "[" * 200 + "]" * 200


def text_of(case: Case) -> str:
    return filled(case["text"], deep=DEEP, long="x" * MAX_CHARS)


@pytest.mark.parametrize("case", cases("broken_json", "read"))
async def test_what_the_run_reads_by_itself_is_left_alone(case: Case) -> None:
    assert find_json_object(text_of(case)) == json.loads(case["object"])


@pytest.mark.parametrize("case", cases("broken_json", "repaired"))
async def test_what_is_nearly_json_is_put_right(case: Case) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_json_object(text_of(case))
    assert find_json_object(await repaired_json(text_of(case))) == json.loads(case["object"], strict=False)


@pytest.mark.parametrize("case", cases("broken_json", "unusable"))
async def test_what_was_meant_is_not_guessed(case: Case) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_json_object(text_of(case))
    assert await repaired_json(text_of(case)) == ""


@pytest.mark.parametrize(
    "unit", ["}{1```", '-```"a"', ")}{-\n", '"\\-\n', "{//a\n", '"', "“", "/*", "\ud800", "{'a':}"], ids=ascii
)
async def test_no_text_takes_more_than_a_moment(unit: str) -> None:
    """The first ones take the library seconds, in quadratic time: the process that tries it is ended."""
    text = ("{'a': 1, '" + unit * MAX_CHARS)[: MAX_CHARS - 1] + "}"
    began = time.process_time()
    repaired = await repaired_json(text)
    assert time.process_time() - began < 1, "the worker's own time"
    assert repaired == "" or find_json_object(repaired)
