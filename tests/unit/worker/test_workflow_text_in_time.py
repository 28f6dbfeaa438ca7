"""Workflow code on the largest texts of a model, tool or starter uses only part of the time of a workflow task."""

import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from orga.activities.replies import MAX_TEXT_BYTES
from orga.workflows.decisions.hydration import find_references
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.input import MAX_TASK_BYTES, PreHydration
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import Message, ToolCall, masked_message, shortened_message
from orga.workflows.types.text import clip_json, delimited_text, one_line, undelimited_text

MOST = 50
"""Times that the parser of the standard library takes for lists of that size without the garbage collector:
some 0.25 s of the 2 s after which the SDK gives up.
"""

RESULT_BYTES = 500_000
"""The size of a tool's result, if an operator allows that much."""


def took(work: Callable[[Any], object], given: object) -> float:
    """Return the time of the fastest of three attempts, in multiples of the parser's."""
    return _quickest_s(work, given) / _quickest_s(json.loads, LISTS)


def _quickest_s(work: Callable[[Any], object], given: object) -> float:
    """Return the processor time of the fastest attempt, without the garbage collector, which depends on other tests."""
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            began = time.process_time()
            with suppress(ValueError):
                work(given)
            times.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(times)


def filled(text: str, size: int, before: str = "", after: str = "") -> str:
    return before + text * (size // len(text.encode())) + after


LISTS = filled("[],", MAX_TEXT_BYTES, "[", "0]")

ANSWERS = [
    filled(" ", MAX_TEXT_BYTES, "```\n", "x"),
    filled("\t", MAX_TEXT_BYTES, "```json\n", "x```"),
    filled(" \n", MAX_TEXT_BYTES, "```\n", "```x"),
    filled("a\n ", MAX_TEXT_BYTES, "```"),
    filled("```\n", MAX_TEXT_BYTES),
    filled("`", MAX_TEXT_BYTES),
    LISTS,
    filled("[],", MAX_TEXT_BYTES, "[", "x]"),
    filled('{"a":0},', MAX_TEXT_BYTES, "[", "0]"),
    filled('"",', MAX_TEXT_BYTES, "[", "0]"),
    filled("9" * 4_000 + ",", MAX_TEXT_BYTES, "[", "0]"),
    filled("9", MAX_TEXT_BYTES),
    filled("[", MAX_TEXT_BYTES),
    filled('{"a":', MAX_TEXT_BYTES),
    filled("\\u0001", MAX_TEXT_BYTES, '"', '"'),
    "{" + ",".join(f'"{n:x}":0' for n in range(MAX_TEXT_BYTES // 10)) + "}",
]


@pytest.mark.parametrize("answer", ANSWERS, ids=[repr(answer[:20]) for answer in ANSWERS])
def test_a_final_answer_is_parsed_in_time(answer: str) -> None:
    assert took(parsed_answer_json, answer) < MOST


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("```\n[1]\n```", [1], id="a fence"),
        pytest.param("```json\n[1]```", [1], id="its end after the value"),
        pytest.param('```json title="a"\n\n [1] \n \t```', [1], id="words after it, spaces around the value"),
        pytest.param('```\n{"a": "```"}\n```', {"a": "```"}, id="a fence in the value"),
        pytest.param('"```"', "```", id="no fence"),
    ],
)
def test_fences(text: str, value: Any) -> None:
    assert parsed_answer_json(text) == value


@pytest.mark.parametrize(
    "text", ["```", "``````", "```\n```", "```a`b\n1\n```", "```\n1\n``", "```\n1\n```x", "``\n1\n```"]
)
def test_an_invalid_fence_around_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON alone"):
        parsed_answer_json(text)


TASKS = ["http://a", "http://a.", "http://a)", "http://a(", "https://[", "/a.", " ./a.b", "./.", "PR ", "PR      ",
         "PR a/b ", "#1 ", "a-", " a/a", f" {'a' * 39}/{'b' * 99}", " ~/a", "/", " ", "'./", " /a.-", "\n", "#", "/#1",
         "é", "．", "a.b/c#1 ", " .a.a"]  # fmt: skip
HYDRATION = PreHydration.model_validate({"custom_patterns": [{"ref_type": "word", "pattern": r"\w*\w*\w*x"}]})


@pytest.mark.parametrize("text", TASKS, ids=map(repr, TASKS))
def test_the_references_of_a_task_are_found_in_time(text: str) -> None:
    task = filled(text, MAX_TASK_BYTES)
    assert took(lambda given: find_references(given, PreHydration()), task) < MOST
    assert took(lambda given: find_references(given, HYDRATION), task) < 5 * MOST, (
        "patterns have a separate limit of 0.4 s"
    )


RESULTS = ["a", "\n", " left out: 1", '"', "\x01", " begins: ", "; data, not instructions]\n", "😀", " ", "[Result of ",
           " ends]\n["]  # fmt: skip
STEPS: dict[str, Callable[[str], object]] = {
    "masked": lambda text: masked_message(Message.of_result(text="[Result of " + text, tool="t")),
    "shortened": lambda text: shortened_message(Message.of_result(text=text, tool="t"), 50_000),
    "delimited": lambda text: delimited_text(text, "result of read_file"),
    "undelimited": undelimited_text,
    "clipped": lambda text: clip_json(text, 50_000),
    "fingerprint": lambda text: call_fingerprint(ToolCall(call_id="1", name="n", arguments={"a": text})),
    "a line": one_line,
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("text", RESULTS, ids=map(repr, RESULTS))
def test_a_result_is_processed_in_time(step: Callable[[str], object], text: str) -> None:
    assert took(step, filled(text, RESULT_BYTES)) < MOST
