"""OpenAI's Responses protocol: the request that is sent, and how the events of any server are read."""

import json
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part, kept_parts
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    call_item,
    complete_request,
    message_item,
    provider,
    response_events,
    stream_response,
    with_keep_alives,
)
from tests.support.model.sdk_types import assert_responses_takes

SEARCH = ToolSpec(
    name="search", description="Find it.", parameters={"type": "object", "properties": {"q": {"type": "string"}}}
)
REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAAAB\u00e9+/=",
    "status": "completed",
}
CONVERSATION = (
    Message.of("user", "find a and b"),
    Message.of(
        "assistant",
        "Looking.",
        calls=(
            ToolCall(call_id="c1", name="search", arguments={"q": "a"}),
            ToolCall(call_id="c2", name="search", malformed='{"q": '),
        ),
        blocks=(block_part(REASONING), block_part({"type": "thinking", "thinking": "of another provider"})),
    ),
    Message.of_result(call_id="c1", tool="search", text="found"),
    Message.of("user", "hurry"),
    Message.of_result(call_id="c2", tool="search", text="bad arguments", is_error=True),
    Message.of("system", "Be brief."),
)


async def sent(**fields: Any) -> dict[str, Any]:
    _, _, network = await complete_request(
        "responses", stream_response(*response_events()), request=a_request(**fields)
    )
    return network.body()


async def test_the_request_is_valid_for_the_types_of_openai() -> None:
    body = await sent(
        system=("You help.", "You cite."),
        messages=CONVERSATION,
        tools=(SEARCH, ToolSpec(name="now")),
        tool_choice="any",
        settings=ModelSettings(temperature=0.0),
        max_output_tokens=77,
        output_schema={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    )
    assert_responses_takes(body)
    assert (body["store"], body["include"], body["stream"]) == (False, ["reasoning.encrypted_content"], True)
    assert body["instructions"] == "You help.\n\nYou cite.\n\nBe brief."
    assert (body["max_output_tokens"], body["temperature"], body["tool_choice"]) == (77, 0.0, "required")
    assert body["text"]["format"]["strict"] is True


async def test_reasoning_is_sent_back_unchanged_before_its_calls() -> None:
    body = await sent(messages=CONVERSATION)
    assert_responses_takes(body)
    assert body["input"] == [
        {"role": "user", "content": "find a and b"},
        REASONING,
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q":"a"}'},
        {"type": "function_call", "call_id": "c2", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"type": "function_call_output", "call_id": "c2", "output": "bad arguments"},
        {"role": "user", "content": "hurry"},
    ]


async def test_reasoning_without_a_result_is_not_sent() -> None:
    body = await sent(messages=(Message.of("user", "a"), Message.of("assistant", blocks=(block_part(REASONING),))))
    assert body["input"] == [{"role": "user", "content": "a"}]


async def test_an_output_limit_below_the_minimum_is_raised_to_it() -> None:
    assert (await sent(max_output_tokens=1))["max_output_tokens"] == 16


OUTPUT = (
    REASONING,
    message_item("Grüß dich 😀", phase="commentary"),
    call_item("c1", "search", '{"q": "a"}'),
    call_item("c2", "now", ""),
)
READ: dict[str, Any] = {
    "parts": (
        {"kind": "opaque", "format": "reasoning", "data": {k: v for k, v in REASONING.items() if k != "type"}},
        {"kind": "opaque", "format": "responses.text", "data": {"phase": "commentary"}},
        {"kind": "text", "text": "Grüß dich 😀"},
        {"call_id": "c1", "name": "search", "arguments": {"q": "a"}},
        {"call_id": "c2", "name": "now"},
    ),
    "finish": "tool_calls",
    "usage": {"input_tokens": 20, "output_tokens": 5, "cached_input_tokens": 8},
}


async def test_a_reply_is_read_and_sent_back_with_all_its_parts() -> None:
    reply, text, _ = await complete_request("responses", stream_response(*response_events(*OUTPUT)))
    assert text == "Grüß dich 😀"
    assert reply.model_dump(exclude_unset=True) == READ
    body = await sent(messages=(Message.of("user", "go"), reply.message()))
    assert_responses_takes(body)
    assert body["input"][1:] == [
        REASONING,
        {"role": "assistant", "content": "Grüß dich 😀", "phase": "commentary"},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q":"a"}'},
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
    ]


def without(*kinds: str) -> list[dict[str, Any]]:
    return [event for event in response_events(*OUTPUT) if not any(kind in event["type"] for kind in kinds)]


def changed(**fields: Any) -> list[dict[str, Any]]:
    """Return the events with these fields replaced in the events of items. None removes a field."""
    events = [event | fields if event["type"].count(".") > 1 else event for event in response_events(*OUTPUT)]
    return [{key: value for key, value in event.items() if value is not None} for event in events]


WHOLE = list(response_events(*OUTPUT))[-1]["response"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(stream_response(*with_keep_alives(response_events(*OUTPUT))), id="keep-alives"),
        pytest.param(stream_response(*without("delta")), id="items without pieces"),
        pytest.param(
            stream_response(*without("output_item.done", "arguments.done")), id="complete items only in the last event"
        ),
        pytest.param(stream_response(WHOLE | {"object": "response"}), id="the whole response as one event"),
        pytest.param(stream_response(*without("item", "delta", "arguments")), id="only the last event"),
        pytest.param(http.Response(200, json=WHOLE), id="no stream"),
        pytest.param(http.Response(200, text=json.dumps(WHOLE | {"object": None})), id="no stream, no types"),
        pytest.param(stream_response(*changed(output_index=None)), id="no numbers"),
        pytest.param(stream_response(*changed(item_id=None)), id="only numbers"),
        pytest.param(stream_response(*changed(output_index=0)), id="every item numbered 0"),
    ],
)
async def test_events_of_any_server_are_read(answer: http.Response) -> None:
    reply, _, _ = await complete_request("responses", answer)
    read = reply.model_dump(exclude_unset=True)
    # Without the event that contains it whole, reasoning is not sent back.
    assert [part for part in read["parts"] if part.get("format") != "reasoning"] == list(READ["parts"][1:])
    assert (read["finish"], read["usage"]) == (READ["finish"], READ["usage"])


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        pytest.param(response_events(message_item("hi")), "stop", id="completed"),
        pytest.param(
            response_events(
                message_item("hi"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
            ),
            "length",
            id="cut by its limit",
        ),
        pytest.param(
            response_events(message_item("hi"), status="incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            id="filtered",
        ),
        pytest.param(
            response_events(message_item("", content=[{"type": "refusal", "refusal": "hi"}])), "refusal", id="refused"
        ),
        pytest.param([*list(response_events(message_item("hi")))[:-1], "[DONE]"], "stop", id="only an end mark"),
    ],
)
async def test_each_ending_has_its_finish_reason(events: Any, finish: str) -> None:
    reply, text, _ = await complete_request("responses", stream_response(*events))
    assert (reply.text, text, reply.finish) == ("hi", "hi", finish)


@pytest.mark.parametrize(
    ("events", "kind", "retryable"),
    [
        pytest.param(list(response_events(message_item("hi")))[:-1], "BadStream", True, id="cut before its end"),
        pytest.param(
            [*list(response_events(call_item("c", "now", '{"a": 1}')))[:3], "[DONE]"],
            "BadStream",
            True,
            id="cut in a call",
        ),
        pytest.param(
            response_events(status="failed", error={"code": "rate_limit_exceeded", "message": "slow down"}),
            "RateLimited",
            True,
            id="a failure with a code",
        ),
        pytest.param(response_events(status="failed"), "BadStream", True, id="a failure without a reason"),
        pytest.param(
            [{"type": "error", "code": "server_error", "message": "oops", "param": None}],
            "ServerError",
            True,
            id="an error",
        ),
        pytest.param(
            [{"type": "error", "error": {"code": "context_length_exceeded", "message": "Your input exceeds …"}}],
            "ContextOverflow",
            False,
            id="an overflow",
        ),
    ],
)
async def test_each_failed_response_has_its_kind_and_retry_rule(events: Any, kind: str, retryable: bool) -> None:
    with pytest.raises(ModelError) as caught:
        await complete_request("responses", stream_response(*events))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


async def test_the_finished_item_of_a_call_wins_over_its_pieces() -> None:
    """Pieces may contain a placeholder, and the name may arrive late."""
    events = list(response_events(call_item("c", "search", '{"q": "a"}')))
    events[1] = events[1] | {"item": events[1]["item"] | {"name": None}}
    events.insert(2, {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"})
    reply, _, _ = await complete_request("responses", stream_response(*events))
    assert reply.calls == (ToolCall(call_id="c", name="search", arguments={"q": "a"}),)


@pytest.mark.parametrize(
    "refusal",
    [
        "Encrypted content is not supported with this model.",
        "Unsupported parameter: 'include' is not supported with this model.",
    ],
)
async def test_a_model_without_reasoning_is_not_asked_for_it(refusal: str) -> None:
    answers = [
        http.Response(400, json={"error": {"message": refusal}}),
        stream_response(*response_events(message_item("hi"))),
    ]
    _, _, network = await complete_request("responses", *answers)
    assert ["include" in network.body(index) for index in range(2)] == [True, False]


async def test_reasoning_that_the_provider_cannot_decrypt_is_left_out() -> None:
    """The key of another organisation cannot decrypt it."""
    refusal = {"code": "invalid_encrypted_content", "message": "The encrypted content gAAA… could not be verified."}
    network = Network(
        [http.Response(400, json={"error": refusal}), stream_response(*response_events(message_item("hi")))]
    )
    model = provider("responses", network)
    await model.complete(a_request(messages=CONVERSATION), lambda text: None)
    await model.close()
    kinds = [[item.get("type") for item in network.body(index)["input"]] for index in range(2)]
    assert ["reasoning" in kind for kind in kinds] == [True, False]


async def test_reasoning_after_refused_reasoning_is_sent_back() -> None:
    refusal = {"code": "invalid_encrypted_content", "message": "The encrypted content gAAA… could not be verified."}
    replies = [stream_response(*response_events(message_item("hi"))) for _ in range(3)]
    network = Network([http.Response(400, json={"error": refusal}), *replies])
    model = provider("responses", network)
    (phase,) = kept_parts("responses.text", {"phase": "commentary"})
    turns: list[Message] = []
    for name in ("rs_1", "rs_2"):
        reasoning = block_part(REASONING | {"id": name})
        turns += [Message.of("user", "go"), Message.of("assistant", "Looking.", blocks=(reasoning, phase))]
        await model.complete(a_request(messages=tuple(turns)), lambda text: None)
    await model.close()
    sent = [[item["id"] for item in network.body(index)["input"] if "id" in item] for index in range(3)]
    assert sent == [["rs_1"], [], ["rs_2"]]


async def test_the_price_of_a_default_model_is_known() -> None:
    model = "gpt-6.1-terra"
    reply, _, _ = await complete_request(
        "responses", stream_response(*response_events(message_item("hi"))), request=a_request(model=model)
    )
    assert reply == Reply.of("hi", usage=reply.usage, model="some-model", cost_usd=reply.cost_usd)
    assert reply.usage == Usage(input_tokens=20, output_tokens=5, cached_input_tokens=8)
    assert reply.cost_usd
