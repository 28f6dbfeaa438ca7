"""Answers of libraries that decide in workflow code: recorded histories depend on today's answers.

A library that answers otherwise would let a run under way stop another step, ask for another approval or send another
key. So a failure here means: keep the old version of the library, or guard the change as one of the loop's own rules.
"""

from typing import Any

import pytest

from orga.workflows.decisions.goals.templates import TemplateProblem, render_template
from orga.workflows.decisions.tool_calls.call_questions import approval_item
from orga.workflows.decisions.tool_calls.calls import call_fingerprint, idempotency_key
from orga.workflows.decisions.tool_calls.repeated_calls import similarity
from orga.workflows.types.context import canonical_json, record_digest
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import Record
from orga.workflows.types.text import LinearPattern, MatchFuel
from orga.workflows.types.tool_calls.gate import Verdict
from tests.support.values.core import T0, a_state

HARD: dict[str, Any] = {
    "text": 'a"\\/\n\t\x7f\u2028é🙂</script>',
    "numbers": [0, -0.0, 1.0, 0.1, 1e16, 1e-7, 1.5e300, 5e-324, 2**53 + 1, 12345678901234567890],
    "no numbers": [float("nan"), float("inf"), float("-inf")],
    "deep": {"b": [None, True, False, {}], "a": [], "": ""},
}
"""Values that writers of JSON treat differently."""

CALL = ToolCall(call_id="c1", name="pay", arguments=HARD)
NUMBERED = {key: HARD[key] for key in ("text", "numbers", "deep")}


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        ("kitten", "sitting", 0.5714285714285714),
        ("", "", 1.0),
        ("a", "", 0.0),
        ("timed out after 10 s", "timed out after 12 s", 0.95),
        ("ConnectionError: no route to 10.0.0.1", "ConnectionError: no route to 10.0.0.27", 0.9473684210526316),
        ("naïve café", "naive cafe", 0.8),
        ("🙂🙃", "🙃🙂", 0.0),
        ("abcdef" * 30, "abcdeg" * 30, 0.8333333333333334),
        ("x" * 600, "x" * 499 + "y" * 200, 0.998),
        (
            'read [["page",1],["path","docs/report.md"]]',
            'read [["page",2],["path","docs/report.md"]]',
            0.9767441860465116,
        ),
        ("the disk is full (17 of 20)", "the disk is full (18 of 20)", 0.962962962962963),
    ],
)
def test_the_similarity_of_two_errors_is_pinned(one: str, other: str, score: float) -> None:
    """Steps are stopped and denials counted as repeated at a threshold, so the last digit may matter."""
    assert similarity(one, other) == score


def test_the_identifiers_of_a_call_are_pinned() -> None:
    """Steps, idempotency keys and approvals of running tasks are stored under these names."""
    assert call_fingerprint(CALL) == "c3775d2aa2728dde"
    assert idempotency_key("origin", "1.0", CALL) == "9f196eca19091f691a9e92b0c2493700"
    item = approval_item(
        a_state(origin="origin"), "1.0", CALL, Verdict(decision="approval", version="v1"), T0, occasion="7"
    )
    assert (item.about, item.approval_id) == ("825837ad60f8be0ff204c64d", "cd72493c5a98657ee2e5f915")


class Sample(Record):
    """A record like those in a history."""

    name: str
    count: float = 0.0
    kept: int = 7
    inner: tuple["Sample", ...] = ()
    data: dict[str, Any] = {}


SAMPLE = Sample(name="é🙂\n", count=1e16, inner=(Sample(name="", count=-0.0, kept=8),), data=NUMBERED)


def test_the_digest_of_a_record_is_pinned() -> None:
    """A context with another digest is never sent, and a tool with another digest was not offered."""
    assert canonical_json(SAMPLE).decode() == (
        '{"name":"é🙂\\n","count":1e+16,"inner":[{"name":"","kept":8}],"data":{'
        '"text":"a\\"\\\\/\\n\\t\x7f\u2028é🙂</script>",'
        '"numbers":[0,-0.0,1.0,0.1,1e+16,1e-7,1.5e+300,5e-324,9007199254740993,12345678901234567890],'
        '"deep":{"b":[null,true,false,{}],"a":[],"":""}}}'
    )
    assert record_digest(SAMPLE)[:32] == "9400ecf7623b9fceb2f0548b831e704b"


@pytest.mark.parametrize(
    ("pattern", "found", "size"),
    [
        (r"T-\d+", ["T-1", "T-22"], 8),
        (r"(?i)ticket\s+(\w+)", ["Ticket  x9"], 27),
        (r"\bé\w*", ["é"], 10),
        (r"a*?b|a+", ["a", "aab", "aaa"], 11),
    ],
)
def test_the_matches_of_a_pattern_are_pinned(pattern: str, found: list[str], size: int) -> None:
    """References of the user's own kinds are looked up before the first iteration, limited by the fuel."""
    text = "T-1, T-22 and Ticket  x9; été, aab aaa"
    assert [*LinearPattern(pattern).find_matches(text, MatchFuel(1_000_000))] == found
    assert LinearPattern(pattern)._size == size


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ a }}{{ b }}\n", 'a"\\/\n\t\x7f\u2028é🙂</script>-7'),
        ("x\n{% if none %}\n1\n{% elif zero %}\n2\n  {% else %}  \n3\n{% endif %}\ny\n\n", "x\n  \n3\ny"),
        ("x {%- if a and not none or zero -%} y {%- endif %} z {# c #}\n w", "xy z  w"),
        ("{%if b%}{{a}}{{b}}{%endif%}\r\n{{ b }}", 'a"\\/\n\t\x7f\u2028é🙂</script>-7-7'),
    ],
)
def test_the_output_of_a_template_is_pinned(template: str, text: str) -> None:
    """A prompt that is rendered again for a running task must have the recorded digest."""
    assert render_template(template, {"a": HARD["text"], "b": -7, "zero": 0, "none": ""}) == text


def test_the_instruction_limit_of_a_template_is_pinned() -> None:
    """A running goal must not fail because of a prompt that worked before."""
    assert render_template("{{ a }}" * 999, {"a": "x"}) == "x" * 999
    with pytest.raises(TemplateProblem, match="takes more than 2,000 instructions"):
        render_template("{{ a }}" * 1_000, {"a": "x"})
