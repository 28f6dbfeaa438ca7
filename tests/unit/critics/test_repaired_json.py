"""Replies that are almost JSON: what is repaired, what is refused, and that no text blocks a worker."""

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
async def test_readable_json_is_left_unchanged(case: Case) -> None:
    assert find_json_object(text_of(case)) == json.loads(case["object"])


@pytest.mark.parametrize("case", cases("broken_json", "repaired"))
async def test_almost_valid_json_is_repaired(case: Case) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_json_object(text_of(case))
    assert find_json_object(await repaired_json(text_of(case))) == json.loads(case["object"], strict=False)


@pytest.mark.parametrize("case", cases("broken_json", "unusable"))
async def test_an_ambiguous_text_is_not_guessed(case: Case) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_json_object(text_of(case))
    assert await repaired_json(text_of(case)) == ""


@pytest.mark.parametrize(
    "unit", ["}{1```", '-```"a"', ")}{-\n", '"\\-\n', "{//a\n", '"', "“", "/*", "\ud800", "{'a':}"], ids=ascii
)
async def test_any_text_is_handled_quickly(unit: str) -> None:
    """The first ones take the library seconds (quadratic time). The process that tries them is ended."""
    text = ("{'a': 1, '" + unit * MAX_CHARS)[: MAX_CHARS - 1] + "}"
    began = time.process_time()
    repaired = await repaired_json(text)
    assert time.process_time() - began < 1, "the worker's own time"
    assert repaired == "" or find_json_object(repaired)
