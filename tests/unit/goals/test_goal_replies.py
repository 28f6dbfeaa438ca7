"""Replies that are not JSON are read tolerantly, and never crash."""

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.workflows.decisions.goals.replies import (
    UnusableReply,
    bounded_line,
    parsed_confidence,
    parsed_evaluations,
    parsed_goal_decision,
    parsed_memory,
    parsed_scores,
    reply_object,
)
from orga.workflows.types.goals.requests import GoalReply, steps_in_reply
from orga.workflows.types.json_text import MAX_READ_CHARS
from orga.workflows.types.messages import Reply, ToolCall

FIVES = dict.fromkeys(("relevance", "completeness", "usability", "goal_progress"), 5)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a": 1}', id="JSON alone"),
        pytest.param('Sure:\n```json\n{"a": 1}\n```\nDone.', id="in a fence among words"),
        pytest.param('{"a": 1,}', id="a comma too many"),
        pytest.param('{"a": 1} and {"b": 2}', id="the first of two objects"),
        pytest.param('I chose {"a": 1}', id="after words"),
    ],
)
def test_an_object_is_found(text: str) -> None:
    assert reply_object(Reply.of(text=text)) == {"a": 1}


STEPS = [{"id": "s1", "goal": "g", "skill": "read", "arguments": {"action": "done", "memory": "m"}}]
PLAN = to_json({"steps": STEPS}).decode()
LIST = to_json(STEPS).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAN, id="alone"),
        pytest.param(f"Use {{curly}} things: {PLAN}", id="after a word in braces"),
        pytest.param(f"The options {{a, b}} are open. {PLAN}", id="after braces with names"),
        pytest.param(f"${{HOME}} is {{{{x}}}} with {{depth: 2}}: {PLAN}", id="after other text in braces"),
        pytest.param(f'The options {{"a", "b"}} are open. {PLAN}', id="after a set of texts"),
        pytest.param(f'I saw {{"status":"ok"}} and plan: {PLAN}', id="after another object"),
        pytest.param(f'I saw {{"error": "not found"}} and [{{"file": "a"}}]. {PLAN}', id="after an error and a list"),
        pytest.param(f"See [the guide](a.md) and [1]: {PLAN} {{that is all}}", id="among links"),
        pytest.param(f'<think>First {{"steps": []}} or {{x}}</think>{PLAN}', id="after thinking"),
        pytest.param(f'Maybe {{"steps": [{{"id": "x"}}]}}\n</think>\n{PLAN}', id="after only the end mark of thinking"),
        pytest.param(f'A draft: {{"steps": []}}. The plan: {PLAN}', id="after an empty draft"),
        pytest.param(f"{PLAN}\nOnce more: {PLAN}", id="twice"),
        pytest.param(f"Here:\n```json\n{PLAN}\n```\nwith {{care}}", id="in a fence among words"),
        pytest.param(LIST, id="a bare list"),
        pytest.param(f"Here is the list: {LIST}", id="a bare list after words"),
        pytest.param(f"```json\n{LIST}\n```", id="a bare list in a fence"),
        pytest.param(f'{{"plan": {PLAN}}}', id="inside another object"),
        pytest.param(f'{{"response": {{"plan": {PLAN}}}}}', id="two objects deep"),
        pytest.param(f'{{"plan": {LIST}}}', id="a list under another key"),
        pytest.param(f"[{PLAN}]", id="inside a list"),
        pytest.param(f"The plan {PLAN[:-1]},}} it is", id="with a comma too many"),
    ],
)
def test_a_plan_is_read_in_all_forms(text: str) -> None:
    assert steps_in_reply(reply_object(Reply.of(text=text), "goal_plan")) == STEPS


@pytest.mark.parametrize(
    ("turn", "text", "why"),
    [
        ("goal_plan", f'{PLAN} or {{"steps": [{{"id": "other"}}]}}', "2 different objects with 'steps'"),
        ("goal_plan", f'{{"thoughts": "a" "plan": {PLAN}}}', "not JSON"),
        ("goal_plan", f'{{"steps": [{{"id": "a"}}, "arguments": {{"plan": {PLAN}}}', "not JSON"),
        ("goal_decide", f'{{"action": "adjust" "steps": {LIST}}}', "not JSON"),
        ("goal_decide", '{"action": "done"} no, {"action": "stuck"}', "2 different objects with 'action'"),
        ("goal_evaluate", '[{"id": "a", "relevance": 5', "not JSON"),
    ],
)
def test_an_ambiguous_or_broken_reply_is_refused(turn: str, text: str, why: str) -> None:
    """In particular, nothing inside broken JSON counts as the reply, because it may be an argument."""
    with pytest.raises(UnusableReply, match=why):
        reply_object(Reply.of(text=text), turn)


@pytest.mark.parametrize("turn", ["goal_plan", "goal_evaluate", "goal_decide", "goal_compress"])
def test_a_call_instead_of_an_answer_is_reported(turn: str) -> None:
    reply = GoalReply.of("I will look.").with_called((ToolCall(call_id="c", name="read_file"),) * 2)
    with pytest.raises(
        UnusableReply, match="you called read_file, and this turn takes no calls: none was made; answer with"
    ):
        reply_object(reply, turn)
    assert reply_object(GoalReply.of(PLAN).with_called(reply.calls), "goal_plan") == {"steps": STEPS}


@pytest.mark.parametrize(
    "unit", ["{", "[", "{}", "{a}", "[1]", '{"', '{"a":', "[{", '{"a": 1}', "{'a': 1}", '{"a": 1,}', '"', "{\\", "}{"]
)
def test_any_text_is_read_quickly(unit: str) -> None:
    began = time.process_time()
    with suppress(UnusableReply):
        reply_object(Reply.of(text=(unit * MAX_READ_CHARS)[:MAX_READ_CHARS]), "goal_plan")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "text",
    ["", "no", "[1, 2]", '"a"', "{", '{"a": NaN}', '{"a": ', "{'a': 1}", "null", '{"a": 1' * 5_000, "x" * 200_000],
    ids=lambda text: text[:12],
)
def test_a_text_without_an_object_is_refused(text: str) -> None:
    with pytest.raises(UnusableReply):
        reply_object(Reply.of(text=text))


def test_a_fence_in_a_string_and_a_zero_byte_are_harmless() -> None:
    assert reply_object(Reply.of(text='{"a": "```json {} ```"}')) == {"a": "```json {} ```"}
    assert bounded_line("a\x00b" * 200, 10).isprintable()


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(str))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        reply_fields = reply_object(Reply.of(text=text))
        parsed_goal_decision(reply_fields)
    except UnusableReply:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(JSON, JSON, JSON, JSON)
def test_values_of_any_type_are_read_or_refused(action: Any, confidence: Any, steps: Any, memory: Any) -> None:
    reply_fields = {"action": action, "confidence": confidence, "steps": steps, "memory": memory, "question": memory}
    assert isinstance(parsed_memory(reply_fields, "before"), str)
    for read in (parsed_goal_decision, parsed_scores):
        with suppress(UnusableReply):
            read(reply_fields)
    with suppress(UnusableReply):
        parsed_evaluations(reply_fields, ("s1",))


@pytest.mark.parametrize(
    ("given_", "confidence"),
    [
        *[(0.7, 0.7), (1, 1.0), ("0.85", 0.85), ("85%", 0.85), (85, 0.85), (-1, 0.0), (1.5, 1.0), (True, 0.0)],
        *[("high", 0.0), (None, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), ([0.9], 0.0), (900, 1.0)],
    ],
)
def test_a_confidence_is_between_0_and_1(given_: object, confidence: float) -> None:
    assert parsed_confidence(given_) == confidence


def test_scores_are_clamped_and_the_label_has_no_effect() -> None:
    reply_fields = {"steps": [{"id": "a", **FIVES, "relevance": "7/5", "usability": -3, "quality": "failed"}]}
    found = parsed_evaluations(reply_fields, ("a",))["a"]
    assert (found.scores.relevance, found.scores.usability, found.label) == (5.0, 1.0, "failed")


@pytest.mark.parametrize(
    ("reply_fields", "why"),
    [
        ({"steps": []}, "no evaluation of a, b"),
        ({"steps": [{"id": "a", **FIVES}]}, "no evaluation of b"),
        ({"steps": [{"id": "a", **FIVES}, {"id": "b", "relevance": 3}]}, "b: a number from 1 to 5 is missing"),
    ],
)
def test_each_step_needs_all_of_its_scores(reply_fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UnusableReply, match=why):
        parsed_evaluations(reply_fields, ("a", "b"))


def test_a_single_step_needs_no_list() -> None:
    assert parsed_evaluations({**FIVES}, ("a",))["a"].scores.mean == 5


@pytest.mark.parametrize(
    ("reply_fields", "why"),
    [
        ({"action": "give up"}, "one of continue, adjust"),
        ({"action": "ask_user", "question": " "}, "a question is missing"),
        ({"action": "adjust", "new_plan": "look again"}, "a list of all steps"),
    ],
)
def test_an_incomplete_decision_is_refused(reply_fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UnusableReply, match=why):
        parsed_goal_decision(reply_fields)


def test_a_memory_of_another_type_is_kept_as_text() -> None:
    assert parsed_memory({"memory": {"year": 1999}}, "before") == '{"year": 1999}'
    assert parsed_memory({"memory": None}, "before") == "before"
    assert len(parsed_memory({"memory": to_json("x" * 50_000).decode()}, "")) == 8_000
