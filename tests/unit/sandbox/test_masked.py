"""A masked result is one line that replaces a text and is never longer than it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.types.messages import Message, masked_message
from orga.workflows.types.parts import OwnText
from tests.support.values.core import user
from tests.support.values.strategies import LAW, messages, texts


def a_result(text: str, tool: str | None = "read_file", *, is_error: bool = False) -> Message:
    return Message.of_result(text=text, call_id="c1", tool=tool, is_error=is_error)


results = st.builds(a_result, texts | st.integers(0, 5_000).map(lambda n: "é" * n), st.none() | texts)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(a_result("x" * 2_000), "[Result of read_file left out: 2,000 bytes]", id="tool and size"),
        pytest.param(a_result("é" * 50, "say"), "[Result of say left out: 100 bytes]", id="the size is in bytes"),
        pytest.param(a_result("x" * 99, None), "[Result of tool left out: 99 bytes]", id="an unknown tool"),
        pytest.param(a_result("x" * 99, "a\nb"), "[Result of a b left out: 99 bytes]", id="a name of two lines"),
        pytest.param(a_result("x" * 999, "n" * 300), f"[Result of {'n' * 100} left out: 999 bytes]", id="a long name"),
        pytest.param(a_result("x" * 39), "x" * 39, id="a text shorter than the placeholder stays"),
        pytest.param(a_result("x" * 40), "x" * 40, id="a text as long as the placeholder stays"),
        pytest.param(a_result("x" * 41), "[Result of read_file left out: 41 bytes]", id="one byte more is masked"),
        pytest.param(a_result("x" * 90, is_error=True), "[Result of read_file left out: 90 bytes]", id="a failure"),
        pytest.param(user("x" * 2_000), "x" * 2_000, id="a user message stays"),
        pytest.param(Message.of("assistant", "x" * 2_000), "x" * 2_000, id="a model message stays"),
    ],
)
def test_masked(message: Message, expected: str) -> None:
    ours = OwnText() if expected == message.text else OwnText(len(expected))
    assert masked_message(message) == message.with_text(expected).with_ours(ours)


@LAW
@given(results)
def test_a_placeholder_is_never_longer_than_the_text(result: Message) -> None:
    assert len(masked_message(result).text.encode()) <= len(result.text.encode())


@LAW
@given(results | messages)
def test_a_masked_message_is_not_masked_again(message: Message) -> None:
    """It still contains the size of the original."""
    once = masked_message(message)
    assert masked_message(once) is once
