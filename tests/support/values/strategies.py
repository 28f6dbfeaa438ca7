"""Hypothesis strategies for messages, calls and replies, with any text and any JSON."""

from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st

from orga.activities.adapters.models.kept_fields import block_part
from orga.workflows.types.messages import FinishReason, Message, Reply, ToolCall

LAW = settings(max_examples=100)
"""The machine is shared, so no example has a deadline."""

any_text = st.text(st.characters(), max_size=40)
"""Characters that include lone surrogates, NUL and control characters."""

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
"""Any text that a payload can contain."""

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
"""Values that survive a round trip through JSON."""

finishes: st.SearchStrategy[FinishReason] = st.sampled_from(get_args(FinishReason))

calls = st.builds(
    ToolCall,
    call_id=texts,
    name=texts,
    arguments=st.dictionaries(texts, json_values, max_size=3),
    malformed=st.none() | texts,
)
any_calls = st.builds(
    ToolCall,
    call_id=any_text | st.sampled_from(["", "a", "a_2", "x" * 250, "x" * 199 + " y"]),
    name=any_text | st.just("n" * 300),
    arguments=st.dictionaries(any_text, any_json, max_size=3),
    malformed=st.none() | any_text,
)
replies = st.builds(Reply, text=texts, calls=st.lists(calls, max_size=4).map(tuple), finish=finishes)
any_replies = st.builds(
    Reply.of,
    text=any_text,
    calls=st.lists(any_calls, max_size=40).map(tuple),
    blocks=st.lists(st.dictionaries(any_text, any_json, max_size=2).map(block_part), max_size=2),
    finish=finishes,
    model=st.none() | any_text,
)
messages = st.builds(
    Message.of,
    role=st.sampled_from(["user", "assistant"]),
    text=texts,
    calls=st.lists(calls, max_size=2).map(tuple),
    blocks=st.lists(st.dictionaries(texts, json_values, max_size=2).map(block_part), max_size=1),
    pinned=st.booleans(),
) | st.builds(
    Message.of_result,
    text=texts,
    call_id=st.none() | texts,
    tool=st.none() | texts,
    is_error=st.booleans(),
    pinned=st.booleans(),
)
