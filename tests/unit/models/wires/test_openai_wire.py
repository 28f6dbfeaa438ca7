"""Chat completions: the request that is sent, and how the stream of any server is read."""

import json
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.kept_fields import block_part, wire_block
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import a_request, chunk, complete_request, stream_response, with_keep_alives
from tests.support.model.sdk_types import assert_openai_takes

SEARCH = ToolSpec(
    name="search", description="Find it.", parameters={"type": "object", "properties": {"q": {"type": "string"}}}
)
DONE = "[DONE]"
CONVERSATION = (
    Message.of("user", "find a and b"),
    Message.of(
        role="assistant",
        text="Looking.",
        calls=(
            ToolCall(call_id="c1", name="search", arguments={"q": "a"}),
            ToolCall(call_id="c2", name="search", malformed='{"q": '),
        ),
        blocks=(
            block_part({"type": "reasoning.text", "text": "hm"}),
            block_part({"type": "thinking", "thinking": "x"}),
        ),
    ),
    Message.of_result(call_id="c1", tool="search", text="found"),
    Message.of("user", "hurry"),
    Message.of_result(call_id="c2", tool="search", text="bad arguments", is_error=True),
    Message.of("system", "Be brief."),
)


def call(index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    function = {"name": name, "arguments": arguments}
    delta = {"index": index, "id": call_id, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in delta.items() if v is not None}


async def sent(kind: str = "openai", **fields: Any) -> dict[str, Any]:
    _, _, network = await complete_request(kind, stream_response(chunk("stop"), DONE), request=a_request(**fields))
    return network.body()


async def test_the_request_is_valid_for_the_types_of_openai() -> None:
    body = await sent(
        system=("You help.", "You cite."),
        messages=CONVERSATION,
        tools=(SEARCH, ToolSpec(name="now")),
        tool_choice="any",
        settings=ModelSettings(temperature=0.0, stop=("END",)),
        max_output_tokens=77,
    )
    assert_openai_takes(body, "reasoning_details")
    assert body["temperature"] == 0.0
    assert body["max_tokens"] == 77
    assert body["stream_options"] == {"include_usage": True}
    assert body["tool_choice"] == "required"
    assert body["tools"][1]["function"] == {"name": "now", "parameters": {"type": "object", "properties": {}}}


async def test_results_follow_their_calls_and_one_system_message_comes_first() -> None:
    """The chat templates of Qwen, Gemma, Mistral and MiniMax refuse a second system message."""
    body = await sent(system=("You help.", " ", "You cite."), messages=CONVERSATION)
    assert [(m["role"], m.get("tool_call_id") or m["content"]) for m in body["messages"]] == [
        ("system", "You help.\n\nYou cite.\n\nBe brief."),
        ("user", "find a and b"),
        ("assistant", "Looking."),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", "hurry"),
    ]
    assert [c["function"]["arguments"] for c in body["messages"][2]["tool_calls"]] == ['{"q":"a"}', "{}"]


async def test_openrouter_gets_reasoning_back_and_cache_breakpoints_for_claude() -> None:
    body = await sent("openrouter", model="anthropic/claude-sonnet-4", system=("You help.",), messages=CONVERSATION)
    cached = {"cache_control": {"type": "ephemeral"}}
    assert body["messages"][2]["reasoning_details"] == [{"type": "reasoning.text", "text": "hm"}]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "You help.\n\nBe brief."} | cached]
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "hurry"} | cached]
    assert json.dumps(body).count("cache_control") == 2


@pytest.mark.parametrize(
    ("fields", "absent"),
    [
        pytest.param({}, {"temperature", "stop", "tools", "tool_choice"}, id="options that are not set"),
        pytest.param({"model": "o3-mini"}, {"max_tokens"}, id="the old limit on an o-series model"),
        pytest.param({"model": "gpt-5-nano"}, {"max_tokens"}, id="the old limit on gpt-5"),
        pytest.param({"model": "gpt-4o"}, {"max_completion_tokens"}, id="the new limit on gpt-4o"),
        pytest.param({"tool_choice": "any"}, {"tool_choice"}, id="a choice without tools"),
        pytest.param({"tools": (SEARCH,)}, {"tool_choice"}, id="a free choice, which some servers refuse"),
    ],
)
async def test_fields_that_do_not_apply_are_not_sent(fields: dict[str, Any], absent: set[str]) -> None:
    body = await sent(**fields)
    assert not absent & set(body)
    assert_openai_takes(body)


async def test_an_invented_tool_name_does_not_invalidate_the_next_request() -> None:
    made_up = ToolCall(call_id="functions.search:0", name="functions.search")
    result = Message.of_result(call_id="functions.search:0", text="no such tool")
    body = await sent(messages=(Message.of("assistant", calls=(made_up,)), result))
    (wire,) = body["messages"][0]["tool_calls"]
    assert wire["function"]["name"] == "functions_search"
    assert wire["id"] == body["messages"][1]["tool_call_id"]
    assert len(wire["id"]) <= 40


async def test_text_is_streamed_and_the_reply_has_only_set_fields() -> None:
    frames = [chunk(role="assistant", content=""), chunk(content="Grüß "), chunk(content="dich 😀"), chunk("stop")]
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
    reply, text, _ = await complete_request("openai", stream_response(*frames, {"choices": [], "usage": usage}, DONE))
    assert text == "Grüß dich 😀"
    assert reply.model_dump(exclude_unset=True) == {
        "parts": ({"kind": "text", "text": "Grüß dich 😀"},),
        "usage": {"input_tokens": 20, "output_tokens": 5, "cached_input_tokens": 8},
    }


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                call(0, "c1", "search", ""),
                call(0, None, None, '{"q":'),
                call(1, "c2", "now", "{}"),
                call(0, None, None, ' "a"}'),
            ],
            id="numbered pieces, interleaved",
        ),
        pytest.param([call(0, "c1", "search", '{"q": "a"}'), call(1, "c2", "now")], id="whole calls"),
        pytest.param([call(0, "c1", "search", '{"q": "a"}'), call(0, "c2", "now")], id="every call numbered 0"),
        pytest.param([call(None, "c1", "search", '{"q": "a"}'), call(None, "c2", "now")], id="no numbers"),
        pytest.param(
            [call(None, "c1", "search", '{"q":'), call(None, None, None, '"a"}'), call(None, "c2", "now")],
            id="no numbers, pieces without id",
        ),
        pytest.param(
            [call(0, "c1", "search", '{"q":'), call(0, "c1", "search", '"a"}'), call(1, "c2", "now")],
            id="id and name repeated with every piece",
        ),
        pytest.param([call(0, "c1", "search", {"q": "a"}), call(1, "c2", "now", {})], id="arguments as an object"),
        pytest.param(
            [call(0, "c1", "search", "{}"), call(0, "c1", "search", '{"q": "a"}'), call(1, "c2", "now", "{}")],
            id="an empty object before the arguments",
        ),
        pytest.param(
            [
                call(0, "c1", "search", "{}"),
                call(0, None, None, '{"q":'),
                call(0, None, None, '"a"}'),
                call(1, "c2", "now"),
            ],
            id="an empty object before pieces",
        ),
        pytest.param(
            [
                call(0, "c1", "search", '{"q": "a"}'),
                call(0, "c1", "search", '{"q": "a"}'),
                call(1, "c2", "now", "null{}"),
            ],
            id="the whole object twice",
        ),
        pytest.param(
            [
                call(0, "c1", "sea", ""),
                call(0, None, "rch", '{"q": "a"}'),
                call(1, "c2", "n"),
                call(1, "c2", "ow", "{}"),
            ],
            id="names in pieces",
        ),
    ],
)
async def test_parallel_calls_of_any_server_are_assembled(deltas: list[Any]) -> None:
    frames = [chunk(tool_calls=[delta]) for delta in deltas]
    reply, _, _ = await complete_request("openai", stream_response(*frames, chunk("tool_calls"), DONE))
    assert reply.calls == (
        ToolCall(call_id="c1", name="search", arguments={"q": "a"}),
        ToolCall(call_id="c2", name="now"),
    )
    assert reply.finish == "tool_calls"


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [call(0, None, "search", '{"q": "a"}'), call(0, None, "search", '{"q": "b"}')],
            ["search a", "search b"],
            id="one tool twice",
        ),
        pytest.param(
            [call(0, None, "search", "{}"), call(0, None, "search", '{"q": "a"}')],
            ["search a"],
            id="an empty object, then the name again with the arguments",
        ),
        pytest.param(
            [call(0, None, "search", '{"q": '), call(0, None, "search", '"}"}'), call(0, None, "search", "")],
            ["search }"],
            id="a name repeated with every piece and after them",
        ),
        pytest.param(
            [call(0, None, "now", ""), call(0, None, "search", '{"q": "a"}')],
            ["now", "search a"],
            id="no arguments, then another tool's",
        ),
        pytest.param(
            [call(0, None, "now", {}), call(0, None, "list", {}), call(0, None, "search", {"q": "a"})],
            ["now", "list", "search a"],
            id="objects, some of them empty",
        ),
        pytest.param(
            [call(0, None, "search", '{"q": "a"}'), call(0, None, "now", "{}"), call(0, None, "search", ""),
             call(0, None, None, '{"q": "b"}')],
            ["search a", "now", "search b"],
            id="a tool again after another",
        ),
        pytest.param(
            [call(None, "c", "search", '{"q": "a"}'), call(None, "c", "now")],
            ["search a", "now"],
            id="one id twice",
        ),
    ],
)  # fmt: skip
async def test_calls_that_share_a_number_or_an_id_are_kept_apart(deltas: list[Any], calls: list[str]) -> None:
    frames = [chunk(tool_calls=[delta]) for delta in deltas]
    reply, _, _ = await complete_request("openai", stream_response(*frames, chunk("tool_calls"), DONE))
    assert [" ".join((made.name, *made.arguments.values())) for made in reply.calls] == calls
    assert not any(made.malformed for made in reply.calls)
    assert len({made.call_id for made in reply.calls}) == len(calls)


async def test_calls_of_a_response_without_streaming_are_never_joined() -> None:
    made = [call(0, "c", "search", '{"q": "a"}'), call(0, "c", "now", ""), call(0, "c", "now", "")]
    whole = {"choices": [{"message": {"tool_calls": made}, "finish_reason": "tool_calls"}]}
    reply, _, _ = await complete_request("openai", http.Response(200, json=whole))
    assert [(made.name, made.arguments) for made in reply.calls] == [("search", {"q": "a"}), ("now", {}), ("now", {})]


@pytest.mark.parametrize(
    ("frames", "finish"),
    [
        pytest.param([chunk("stop", content="hi")], "stop", id="stop"),
        pytest.param([chunk("tool_calls", content="hi")], "stop", id="calls announced, none made"),
        pytest.param([chunk("stop", tool_calls=[call(0, "c", "now")])], "tool_calls", id="calls made, none announced"),
        pytest.param([chunk("length", tool_calls=[call(0, "c", "now", '{"')])], "length", id="cut within a call"),
        pytest.param([chunk("content_filter")], "content_filter", id="content filter"),
        pytest.param([chunk("model_length", content="hal")], "length", id="the model's own limit"),
        pytest.param([chunk("model_length", tool_calls=[call(0, "c", "now")])], "length", id="that limit in a call"),
        pytest.param([chunk("function_call_filter: MALFORMED_FUNCTION_CALL", tool_calls=[call(0, "c", "now")])],
                     "content_filter", id="a filter of calls, with its detail"),
        pytest.param([chunk("SAFETY", content="hal")], "content_filter", id="a safety filter in capitals"),
        pytest.param([chunk("end_turn", tool_calls=[call(0, "c", "now")])], "tool_calls", id="another name for a stop"),
        pytest.param([chunk("something_new", content="hi")], "stop", id="an unknown reason"),
        pytest.param([chunk("something_new", tool_calls=[call(0, "c", "now", '{"a": "}"}')])], "tool_calls",
                     id="an unknown reason after a complete call"),
        pytest.param([chunk("something_new", tool_calls=[call(0, "c", "now")])], "length",
                     id="an unknown reason after a tool name"),
        pytest.param([chunk("something_new", tool_calls=[call(0, "c", "now", '{"a": "\\"}')])], "length",
                     id="an unknown reason within a call"),
        pytest.param([chunk(tool_calls=[call(0, "c", "now", '{"a": {}}')]), DONE], "tool_calls",
                     id="only an end mark after a complete call"),
        pytest.param([chunk(refusal="I can't"), chunk("stop")], "refusal", id="refusal"),
        pytest.param([chunk(content="hi"), DONE], "stop", id="only an end mark"),
        pytest.param([chunk("stop", content="hi")], "stop", id="only a reason"),
    ],
)  # fmt: skip
async def test_each_ending_has_its_finish_reason(frames: list[Any], finish: str) -> None:
    reply, _, _ = await complete_request("openai", stream_response(*frames))
    assert reply.finish == finish


async def test_a_refusal_keeps_its_own_text() -> None:
    reply, text, _ = await complete_request(
        "openai", stream_response(chunk(refusal="I can't "), chunk(refusal="do that"), DONE)
    )
    assert (reply.text, text) == ("I can't do that", "I can't do that")


async def test_a_response_without_streaming_is_read() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [call(None, "c1", "now", "{}")]}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    whole = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    reply, text, _ = await complete_request("openai", http.Response(200, json=whole))
    assert text == "hi"
    assert reply == Reply.of(
        text="hi",
        calls=(ToolCall(call_id="c1", name="now"),),
        finish="tool_calls",
        usage=Usage(input_tokens=3, output_tokens=1),
    )


WHOLE = {"object": "chat.completion", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
HI = f"data: {json.dumps(chunk('stop', content='hi'))}\n\n"


@pytest.mark.parametrize(
    "kind", ["text/plain; charset=utf-8", "application/octet-stream", "text/event-stream", "application/json", None]
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(json.dumps(WHOLE), id="a whole body"),
        pytest.param("\ufeff\r\n " + json.dumps(WHOLE, indent=1), id="a whole body after a byte order mark and blanks"),
        pytest.param(f"{HI}data: [DONE]\n\n", id="events"),
        pytest.param(f": waiting\n\nevent: message\n{HI}", id="events that begin with a comment"),
    ],
)
async def test_the_body_is_read_by_its_content_regardless_of_its_type(kind: str | None, body: str) -> None:
    headers = {"content-type": kind} if kind else {}
    reply, _, _ = await complete_request("openai", http.Response(200, headers=headers, content=body.encode()))
    assert reply.text == "hi"


async def test_openrouter_reports_its_model_reasoning_and_cost() -> None:
    details = [
        {"type": "reasoning.text", "index": 0, "text": "first "},
        {"type": "reasoning.text", "index": 0, "text": "second", "signature": None},
        {"type": "reasoning.text", "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "AA"},
    ]
    frames = [chunk(reasoning_details=[detail]) | {"model": "real/model"} for detail in details]
    usage: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "cost": 0.25}}
    reply, _, _ = await complete_request("openrouter", stream_response(*frames, chunk("stop"), usage, DONE))
    assert tuple(map(wire_block, reply.blocks)) == (
        {"type": "reasoning.text", "index": 0, "text": "first second", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "AA"},
    )
    assert (reply.model, reply.cost_usd) == ("real/model", 0.25)


async def test_surrogates_split_over_two_pieces_are_joined() -> None:
    reply, text, _ = await complete_request(
        "openai",
        stream_response(chunk(content="a\ud83d"), chunk(content="\ude00b\x00"), chunk("stop", content="\ud83d")),
    )
    assert text == reply.text == "a😀b\ufffd"
    assert reply.model_dump_json()


@pytest.mark.parametrize("kind", ["text", "arguments"])
async def test_a_very_long_reply_is_cut_with_finish_reason_length(kind: str) -> None:
    piece = "x\u0001" * 50_000
    delta: dict[str, Any] = {"content": piece} if kind == "text" else {"tool_calls": [call(0, "c", "now", piece)]}
    reply, text, _ = await complete_request("openai", stream_response(*[chunk(**delta)] * 30, size=60_000))
    assert reply.finish == "length"
    assert len(reply.model_dump_json(exclude_unset=True)) <= 1_001_000
    assert text == reply.text
    if kind == "text":
        assert len(reply.model_dump_json(exclude_unset=True)) > 990_000


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        pytest.param(stream_response(chunk(content="hal")), "BadStream", True, id="cut before its end"),
        pytest.param(
            stream_response(chunk(content="a"), '{"choices": [{"de'), "BadStream", True, id="a frame cut short"
        ),
        pytest.param(stream_response("[1]"), "BadStream", True, id="a frame that is no object"),
        pytest.param(http.Response(200, text="null"), "BadStream", True, id="a body that holds nothing"),
        pytest.param(stream_response("{}", "null", DONE), "BadStream", True, id="keep-alives alone"),
        pytest.param(http.Response(200, text='{"choices": [{"mess'), "BadStream", True, id="a whole body cut short"),
        pytest.param(stream_response('{"a": NaN}'), "BadStream", True, id="a frame that is no JSON"),
        pytest.param(stream_response("[" * 100_000), "BadStream", True, id="a frame nested without end"),
        pytest.param(stream_response(DONE), "BadStream", True, id="an end without a reply"),
        pytest.param(stream_response(), "BadStream", True, id="nothing"),
        pytest.param(http.Response(200, json={"detail": "eh"}), "BadStream", True, id="JSON of another kind"),
        pytest.param(http.Response(200, html="<p>log in"), "BadStream", True, id="a page"),
        pytest.param(
            stream_response({"error": {"message": "slow down", "code": 429}}),
            "RateLimited",
            True,
            id="an error with a status",
        ),
        pytest.param(
            stream_response(chunk(content="a"), {"error": {"message": "oops", "type": "server_error"}}),
            "ServerError",
            True,
            id="an error in mid-stream",
        ),
        pytest.param(
            stream_response({"error": {"message": "too many", "code": "context_length_exceeded"}}),
            "ContextOverflow",
            False,
            id="an overflow found late",
        ),
        pytest.param(stream_response({"error": "what?"}), "ServerError", True, id="an error that is a string"),
        pytest.param(
            stream_response(chunk(tool_calls=[call(0, "c", "now")]), DONE),
            "BadStream",
            True,
            id="only an end mark after a tool name",
        ),
        pytest.param(stream_response(chunk("abort", content="hal"), DONE), "BadStream", True, id="aborted"),
        pytest.param(
            stream_response(chunk("insufficient_system_resource", tool_calls=[call(0, "c", "now", "{}")]), DONE),
            "BadStream",
            True,
            id="out of resources",
        ),
        pytest.param(
            stream_response(
                {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow"}}]}
            ),
            "RateLimited",
            True,
            id="an error in a choice",
        ),
        pytest.param(
            http.Response(200, json={"choices": [{"message": {"content": ""}, "error": {"code": 502}}]}),
            "ServerError",
            True,
            id="an error in a choice that is not streamed",
        ),
        pytest.param(stream_response(chunk("error")), "ServerError", True, id="an error as finish reason"),
        pytest.param(
            http.Response(200, json={"error": {"type": "authentication_error"}}),
            "AuthenticationFailed",
            False,
            id="an error under status 200",
        ),
    ],
)
async def test_each_failed_stream_has_its_kind_and_retry_rule(
    answer: http.Response, kind: str, retryable: bool
) -> None:
    with pytest.raises(ModelError) as caught:
        await complete_request("openai", answer)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


async def test_keep_alives_are_ignored() -> None:
    frames = [chunk(content="hi"), chunk(tool_calls=[call(0, "c", "now", "{}")]), chunk("tool_calls"), DONE]
    reply, text, _ = await complete_request("openai", stream_response(*with_keep_alives(frames)))
    assert (text, reply.calls, reply.finish) == ("hi", (ToolCall(call_id="c", name="now"),), "tool_calls")
