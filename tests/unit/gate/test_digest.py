"""Digests are equal for equal values, however they were serialised."""

from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.types.context import (
    EMPTY_DIGEST,
    canonical_json,
    extended_digest,
    messages_digest,
    record_digest,
    short_digest,
)
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.setup import Setup
from tests.support.values.core import a_setup, a_spec, user
from tests.support.values.strategies import LAW, messages, replies


@LAW
@given(messages)
def test_a_message_has_the_same_digest_after_a_round_trip_through_the_history(message: Message) -> None:
    for text in (message.model_dump_json(), message.model_dump_json(exclude_unset=True)):
        assert extended_digest(EMPTY_DIGEST, Message.model_validate_json(text)) == extended_digest(
            EMPTY_DIGEST, message
        )


@LAW
@given(replies)
def test_a_reply_gives_the_same_message_after_a_round_trip_through_the_history(reply: Reply) -> None:
    read = Reply.model_validate_json(reply.model_dump_json(exclude_unset=True))
    assert canonical_json(read.message()) == canonical_json(reply.message())


@LAW
@given(messages, messages)
def test_different_messages_have_different_digests(one: Message, other: Message) -> None:
    assert (extended_digest(EMPTY_DIGEST, one) == extended_digest(EMPTY_DIGEST, other)) == (
        canonical_json(one) == canonical_json(other)
    )


@LAW
@given(st.lists(messages, max_size=5), st.integers(0, 5))
def test_a_digest_can_be_continued_anywhere(earlier: list[Message], at: int) -> None:
    whole = tuple(earlier)
    assert messages_digest(whole[at:], messages_digest(whole[:at])) == messages_digest(whole)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((user("ab"),), (user("a"), user("b")), id="the same text in two messages"),
        pytest.param((user("a"), user("b")), (user("b"), user("a")), id="another order"),
        pytest.param((user("a"),), (user("a", pinned=True),), id="pinned or not"),
        pytest.param((user("a"),), (Message.of_result(text="a"),), id="another role"),
        pytest.param(
            (Message.of_result(call_id="1", text="a"),),
            (Message.of_result(tool="1", text="a"),),
            id="another key",
        ),
        pytest.param(
            (Message.of("assistant", calls=(ToolCall(call_id="1", name="n", arguments={"a": 1}),)),),
            (Message.of("assistant", calls=(ToolCall(call_id="1", name="n", arguments={"a": "1"}),)),),
            id="a number or its text",
        ),
    ],
)
def test_small_differences_change_the_digest(one: tuple[Message, ...], other: tuple[Message, ...]) -> None:
    assert messages_digest(one) != messages_digest(other)


def test_no_messages_have_the_empty_digest() -> None:
    assert messages_digest(()) == EMPTY_DIGEST


def test_a_setup_has_the_same_digest_after_a_round_trip_through_the_history() -> None:
    setup = a_setup(a_spec(parameters={"type": "object", "maximum": 1.0}, timeout_s=5), instructions="é")
    read = Setup.model_validate_json(setup.model_dump_json(exclude_unset=True))
    assert record_digest(read) == record_digest(setup)


def test_a_short_digest_is_a_prefix_of_the_digest() -> None:
    digest = extended_digest(EMPTY_DIGEST, user("a"))
    assert (len(digest), len(short_digest(digest))) == (64, 22)
    assert digest.startswith(urlsafe_b64decode(short_digest(digest) + "==").hex())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"max_iterations": 7, "temperature": 0.3, "max_output_tokens": 9}, '"max_iterations":7,"max_output_tokens":9'),
        ({"max_output_tokens": 9, "temperature": 0, "timeout_s": 5}, '"timeout_s":5.0,"temperature":0.0,"max_output_t'),
        ({"max_iterations": 7, "effort": "low"}, '"max_iterations":7,"temperature":null,"effort":"low"'),
    ],
)
def test_the_digest_of_a_config_is_what_it_was_when_every_run_had_a_temperature(
    config: dict[str, Any], text: str
) -> None:
    assert canonical_json(LoopConfig(**config)).decode().startswith("{" + text)


def test_a_setup_with_todays_defaults_differs_from_one_with_the_former_temperature() -> None:
    former, today = (a_setup(config=LoopConfig(temperature=value)) for value in (0.3, None))
    assert '"config"' not in canonical_json(former).decode()
    assert '"config":{"temperature":null}' in canonical_json(today).decode()
