"""Fields and blocks of replies go back as they came, over ten turns with parallel calls, by HTTP and the history."""

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models import kept_fields
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError
from orga.activities.replies import normalised_reply
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings
from orga.workflows.types.models.providers import Api
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    message_events,
    response_events,
    stream_response,
    text_response,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes, assert_responses_takes
from tests.support.web.serving import serving

TURNS = 10

Frames = Sequence[dict[str, Any] | str]


async def talk(api: Api, turns: Sequence[Frames], refused: str = "") -> list[dict[str, Any]]:
    """Return the bodies of all requests of a conversation in which the server's replies are `turns`.

    A request that contains the text `refused` is refused, in words that name it, and is not among the bodies.
    """
    bodies: list[dict[str, Any]] = []
    refusals: list[bool] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            refusals.append(bool(refused) and f'"{refused}"' in text)
            if refusals[-1]:
                self.send_error(400, f"messages.1.{refused}: Extra inputs are not permitted")
                return
            bodies.append(json.loads(text))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for frame in turns[min(len(bodies), len(turns)) - 1]:
                text = frame if isinstance(frame, str) else json.dumps(frame)
                self.wfile.write(f"data: {text}\n\n".encode())

    with serving(Server) as port:
        place = EndpointSettings(api=api, base_url=f"http://127.0.0.1:{port}/v1")
        registry = ModelRegistry({}, endpoints={"house": place})
        model, name = registry.resolve("house:m")
        messages = [Message.of("user", "go")]
        for _ in range(len(turns) + 1):
            read = await model.complete(a_request(model=name, messages=tuple(messages)), lambda text: None)
            kept = normalised_reply(read, messages).model_dump_json(exclude_unset=True)
            reply = Reply.model_validate_json(kept)
            messages += [reply.message(), *(Message.of_result("ok", each.call_id, each.name) for each in reply.calls)]
        await registry.close()
    assert sum(refusals) <= 1
    return bodies


def ids(turn: int) -> tuple[str, str]:
    return f"a{turn}", f"b{turn}"


# --- Anthropic's Messages


def streamed_block(block: dict[str, Any], unknown_delta: str = "") -> list[dict[str, Any]]:
    """Return the start and the deltas of a block, as Anthropic streams it. Other fields come with the start."""
    start, deltas = dict(block), list[dict[str, Any]]()
    if "citations" in block:
        start["citations"] = []
        deltas += [{"type": "citations_delta", "citation": each} for each in block["citations"]]
    for kind, name in (("thinking_delta", "thinking"), ("signature_delta", "signature"), ("text_delta", "text")):
        if name in block:
            start[name] = ""
            deltas += [{"type": kind, name: piece} for piece in halves(block[name])]
    if "input" in block:
        start["input"] = {}
        pieces = halves(json.dumps(block["input"])) if block["input"] else [""]
        deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if unknown_delta:
        start[unknown_delta] = None
        deltas += [{"type": f"{unknown_delta}_delta", unknown_delta: piece} for piece in halves(block[unknown_delta])]
    return [start, *deltas]


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]] if len(text) > 1 else [text] * bool(text)


def anthropic_content(turn: int) -> list[dict[str, Any]]:
    first, second = ids(turn)
    search = f"srvtoolu_{turn}"
    found = {"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "Eq+/="}
    cited: dict[str, Any] = {"type": "web_search_result_location", "cited_text": "c", "encrypted_index": "Eo8=="}
    cited |= {"url": "https://a.test", "title": "A"}
    code: dict[str, Any] = {
        "type": "code_execution_result",
        "stdout": "1\n",
        "stderr": "",
        "return_code": 0,
        "content": [],
    }
    return [
        {"type": "thinking", "thinking": f"I think {turn} 😀", "signature": f"Eq{turn}+/=="},
        {"type": "thinking", "thinking": "", "signature": f"empty{turn}=="},
        {"type": "redacted_thinking", "data": f"Em{turn}+/"},
        {"type": "server_tool_use", "id": search, "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": search, "content": [found], "caller": {"type": "direct"}},
        {"type": "text", "text": f"Cited {turn}.", "citations": [cited, cited | {"title": None}]},
        {"type": "server_tool_use", "id": f"{search}c", "name": "code_execution", "input": {}},
        {"type": "code_execution_tool_result", "tool_use_id": f"{search}c", "content": code},
        {"type": "tool_use", "id": first, "name": "look", "input": {"q": turn}, "caller": {"type": "direct"}},
        {"type": "thinking", "thinking": "between", "signature": f"Ez{turn}="},
        {"type": "tool_use", "id": second, "name": "look", "input": {}, "toolset_name": "t", "trace": {"n": [turn]}},
        {"type": "thinking", "thinking": "after", "signature": f"Ey{turn}="},
    ]


def anthropic_turn(content: list[dict[str, Any]]) -> Frames:
    return list(message_events(*map(streamed_block, content), stop="tool_use"))


async def test_anthropic_gets_its_blocks_back() -> None:
    contents = [anthropic_content(turn) for turn in range(TURNS)]
    bodies = await talk("messages", [anthropic_turn(content) for content in contents])
    for body in bodies:
        assert_anthropic_takes(body, "trace")
    sent_back = [message["content"] for message in bodies[TURNS]["messages"] if message["role"] == "assistant"]
    assert sent_back == contents


async def test_unknown_blocks_and_deltas_of_anthropic_go_back() -> None:
    mystery = {"type": "mystery", "data": "secret text", "n": 1, "list": [{"a": None}]}
    compaction = {"type": "compaction", "content": "the summary"}
    content = [mystery, compaction, *anthropic_content(0)[8:9]]
    blocks = [streamed_block(mystery, "data"), streamed_block(compaction, "content"), streamed_block(content[2])]
    bodies = await talk("messages", [list(message_events(*blocks, stop="tool_use"))])
    assert bodies[1]["messages"][1]["content"] == content


async def test_a_message_with_a_search_and_no_text_goes_back() -> None:
    content = anthropic_content(0)[3:5]
    bodies = await talk("messages", [anthropic_turn(content)])
    assert bodies[1]["messages"][1]["content"] == content


async def test_a_whole_message_of_anthropic_goes_back_as_well() -> None:
    content = anthropic_content(0)
    whole: dict[str, Any] = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {}}
    bodies = await talk("messages", [[whole]])
    assert bodies[1]["messages"][1]["content"] == content


PAST = "2026-04-21T07:00:21.511595Z"


def in_container(turn: Frames, name: str, event: str = "message_delta", ends: str = PAST) -> Frames:
    """Return the turn with the container that its code ran in, which Anthropic names at the end of a stream."""
    copied = json.loads(json.dumps(turn))
    frame = next(each for each in copied if each["type"] == event)
    holder = frame.get({"message_delta": "delta", "message_start": "message"}.get(event), frame)
    holder["container"] = {"id": name, "expires_at": ends}
    return copied


async def test_the_latest_container_goes_back_to_anthropic() -> None:
    """A request is refused without it, as long as code in it waits for the result of a call."""
    turn = anthropic_turn(anthropic_content(0))
    whole: dict[str, Any] = {"type": "message", "content": anthropic_content(1), "stop_reason": "tool_use", "usage": {}}
    turns = [
        turn,
        in_container(turn, "container_a"),
        turn,
        in_container(turn, "container_b", "message_start"),
        in_container([whole], "container_c", "message"),
    ]
    bodies = await talk("messages", turns)
    sent = [body.get("container") for body in bodies]
    assert sent == [None, None, "container_a", "container_a", "container_b", "container_c"]
    for body in bodies:
        assert_anthropic_takes(body, "trace")


@pytest.mark.parametrize("odd", ["container_a", 5, [], {"id": None}, {"id": {"a": 1}}, {"id": "x" * 3_000_000}])
async def test_a_container_without_a_usable_id_does_not_go_back(odd: Any) -> None:
    whole = {"type": "message", "content": anthropic_content(0), "stop_reason": "tool_use", "container": odd}
    assert "container" not in (await talk("messages", [[whole]]))[1]


async def test_half_a_character_in_the_id_of_a_container_fails_nothing() -> None:
    bodies = await talk("messages", [in_container(anthropic_turn(anthropic_content(0)), "a\ud800", ends="\ud800")])
    assert bodies[1]["container"] == "a\ufffd"


LOST = {
    "Anthropic, gone": ("messages", 404, "not_found_error", "Container not found."),
    "Anthropic, unknown": (
        "messages",
        400,
        "invalid_request_error",
        "container_id is required when there are pending tool uses generated by code execution with tools.",
    ),
    "OpenAI, gone": ("responses", 404, "invalid_request_error", "Container with id 'cntr_1' not found."),
    "OpenAI, expired": ("responses", 400, "invalid_request_error", "Container is expired."),
    "OpenAI, another": ("responses", 400, "invalid_request_error", "Expected container_id: cntr_1"),
    "only in the code": ("messages", 400, "container_expired", "The session has ended."),
    "no longer": ("responses", 410, "invalid_request_error", "Container cntr_1 is no longer available."),
    "deleted": ("messages", 400, "invalid_request_error", "container: container_a was deleted"),
    "not found before its name": ("responses", 404, "not_found_error", "Could not find the container 'cntr_1'."),
}


async def bodies_after_code(
    api: Api, *answers: http.Response, settings: ModelSettings | None = None, ends: str = PAST
) -> list[dict[str, Any]]:
    """Return the bodies of the requests of two calls, after a reply whose code ran in a container."""
    code = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1", "code": "1", "status": "completed"}
    turn = in_container(anthropic_turn(anthropic_content(0)), "container_a", ends=ends)
    turn = turn if api == "messages" else list(response_events(code, *response_items(0)[4:5]))
    network = Network([stream_response(*turn), *answers])
    place = EndpointSettings(api=api, base_url="https://models.test/v1")
    registry = ModelRegistry({}, endpoints={"house": place}, transport=http.MockTransport(network))
    model, name = registry.resolve("house:m")
    reply = await model.complete(a_request(model=name), lambda text: None)
    results = [Message.of_result("ok", each.call_id, each.name) for each in reply.calls]
    messages = (Message.of("user", "go"), reply.message(), *results)
    request = a_request(model=name, messages=messages, settings=settings or ModelSettings())
    for _ in range(2):
        assert (await model.complete(request, lambda text: None)).text == "hi"
    await registry.close()
    return [network.body(index) for index in range(1, len(network.requests))]


@pytest.mark.parametrize(("api", "status", "kind", "why"), LOST.values(), ids=LOST)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_conversation_goes_on_after_its_container_is_lost(
    api: Api, status: int, kind: str, why: str, is_streamed: bool
) -> None:
    """The blocks of the code go with it, because they wait for it. Other conversations send theirs as before."""
    error = {"type": kind, "message": why}
    refusal = http.Response(status, json={"error": error})
    refusal = stream_response({"type": "error", "error": error}) if is_streamed else refusal
    whole, without, later = await bodies_after_code(api, refusal, text_response(api), text_response(api))
    assert whole == later
    assert [name for name in ("code_interpreter_call", "server_tool_use", "container_") if name in str(without)] == []
    assert ("container_a" in str(whole)) == (api == "messages")


def failed_server(status: int = 500) -> http.Response:
    return http.Response(status, json={"error": {"type": "api_error", "message": "Internal server error"}})


async def test_a_server_error_after_the_end_of_a_container_may_be_its_loss() -> None:
    answers = (failed_server(), text_response("messages"), text_response("messages"))
    bodies = await bodies_after_code("messages", *answers)
    assert ["container" in body for body in bodies] == [True, False, True]


@pytest.mark.parametrize(
    ("status", "ends"), [(500, "2999-04-21T07:00:21Z"), (529, PAST), (500, ""), (500, "soon"), (500, "9999-12-31")]
)
async def test_other_server_errors_keep_the_container(status: int, ends: str) -> None:
    with pytest.raises(ModelError) as raised:
        await bodies_after_code("messages", failed_server(status), text_response("messages"), ends=ends)
    assert raised.value.retryable


async def test_a_server_that_fails_without_the_container_too_is_asked_no_third_time() -> None:
    with pytest.raises(ModelError, match="Internal server error") as raised:
        await bodies_after_code("messages", failed_server(), failed_server(), text_response("messages"))
    assert raised.value.retryable


async def test_another_refusal_in_the_same_call_makes_the_loss_of_a_container_no_lesson() -> None:
    gone = http.Response(404, json={"error": {"type": "not_found_error", "message": "Container not found."}})
    refused = http.Response(400, json={"error": {"message": "temperature is not supported"}})
    answers = (gone, refused, text_response("messages"), text_response("messages"))
    bodies = await bodies_after_code("messages", *answers, settings=ModelSettings(temperature=0.5))
    assert ["container" in body for body in bodies] == [True, False, False, True]
    assert ["temperature" in body for body in bodies] == [True, True, False, False]


# --- OpenAI's Responses


def response_items(turn: int) -> list[dict[str, Any]]:
    first, second = ids(turn)
    reasoning = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gA+/=é",
    }
    call = {"type": "function_call", "name": "look", "status": "completed"}
    search = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "a"}}
    return [
        reasoning | {"id": f"rs_{turn}a"},
        search | {"id": f"ws_{turn}"},
        {"type": "mystery_item", "id": f"my_{turn}", "deep": {"list": [1, {"x": None}]}},
        reasoning | {"id": f"rs_{turn}b", "summary": []},
        call | {"id": f"fc_{turn}a", "call_id": first, "arguments": '{"q":1}', "namespace": "crm"},
        reasoning | {"id": f"rs_{turn}c"},
        call | {"id": f"fc_{turn}b", "call_id": second, "arguments": "{}"},
        reasoning | {"id": f"rs_{turn}d"},
    ]


@pytest.mark.parametrize("left_out", ["nothing", "output_item.done"])
async def test_responses_get_their_items_back(left_out: str) -> None:
    turns = [response_items(turn) for turn in range(TURNS)]
    events = [[each for each in response_events(*items) if left_out not in each["type"]] for items in turns]
    bodies = await talk("responses", events)
    for body in bodies:
        assert_responses_takes(
            {**body, "input": [item for item in body["input"] if item.get("type") != "mystery_item"]}
        )
    unneeded = {"id", "status"}
    expected = [
        {key: value for key, value in item.items() if item["type"] != "function_call" or key not in unneeded}
        for items in turns
        for item in items
    ]
    sent_back = [item for item in bodies[TURNS]["input"] if item.get("type") not in {None, "function_call_output"}]
    assert sent_back == expected


# --- Chat Completions


def a_call(turn: int, index: int, **fields: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"q":1}'}
    return {"id": ids(turn)[index], "type": "function", "function": function, **fields}


def with_text(turn: int, **fields: Any) -> dict[str, Any]:
    """Return a message with two calls."""
    return {"role": "assistant", "content": None, "tool_calls": [a_call(turn, 0), a_call(turn, 1)], **fields}


def in_pieces(name: str, *pieces: Any) -> Frames:
    return [chunk(**{name: piece}) for piece in pieces]


def calls_of(message: dict[str, Any]) -> Frames:
    made = [{"index": index} | call for index, call in enumerate(message["tool_calls"])]
    return [*(chunk(tool_calls=[each]) for each in made), chunk("tool_calls"), "[DONE]"]


ChatTurn = Callable[[int], tuple[Frames, dict[str, Any]]]
"""The frames before the calls of a turn, and the message that has to go back."""


def plain(*names: str) -> ChatTurn:
    def turn(n: int) -> tuple[Frames, dict[str, Any]]:
        pieces = [chunk(**dict.fromkeys(names, piece)) for piece in ("I ", "I ", "", f"think {n} é")]
        return pieces, with_text(n, **dict.fromkeys(names, f"I I think {n} é"))

    return turn


def litellm(n: int) -> tuple[Frames, dict[str, Any]]:
    def piece(text: str, signature: str | None = None) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text, "signature": signature}

    frames = [
        *in_pieces("thinking_blocks", [piece("I ")], [piece("think")], [piece("", f"Eq{n}")]),
        *in_pieces("thinking_blocks", [piece("more")], [piece("", f"Er{n}")], [piece("", f"only{n}")]),
        *in_pieces("thinking_blocks", [{"type": "redacted_thinking", "data": "Em"}]),
    ]
    blocks = [piece("I think", f"Eq{n}"), piece("more", f"Er{n}"), piece("", f"only{n}")]
    return frames, with_text(n, thinking_blocks=[*blocks, {"type": "redacted_thinking", "data": "Em"}])


def details(n: int) -> tuple[Frames, dict[str, Any]]:
    """OpenRouter: Anthropic's, OpenAI's and Gemini's shapes."""
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    summary = {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 1}
    hidden = {"type": "reasoning.encrypted", "format": "openai-responses-v1", "index": 1, "id": f"rs_{n}"}
    other = {"type": "reasoning.encrypted", "format": "google-gemini-v1", "index": 0}
    frames = in_pieces(
        "reasoning_details",
        [text | {"text": "I "}],
        [text | {"text": "think", "signature": None}],
        [{"type": "reasoning.text", "index": 0, "signature": f"Eq{n}"}],
        [summary | {"summary": "In "}],
        [summary | {"summary": "short"}],
        [hidden | {"data": "gA=="}],
        [other | {"data": "x", "id": "a"}, other | {"data": "y", "id": "b"}],
    )
    whole = [
        text | {"text": "I think", "signature": f"Eq{n}"},
        summary | {"summary": "In short"},
        hidden | {"data": "gA=="},
        other | {"data": "x", "id": "a"},
        other | {"data": "y", "id": "b"},
    ]
    return frames, with_text(n, reasoning_details=whole)


def gemini(n: int) -> tuple[Frames, dict[str, Any]]:
    signed = {"google": {"thought_signature": f"c2ln{n}+/="}}
    calls = [a_call(n, 0, extra_content=signed), a_call(n, 1)]
    return in_pieces("extra_content", signed), with_text(n, extra_content=signed, tool_calls=calls)


def unknown(n: int) -> tuple[Frames, dict[str, Any]]:
    """Copilot's field, a repeated one, an object in pieces, and fields of a call that nobody knows."""
    frames = [
        *in_pieces("reasoning_opaque", f"op{n}+/="),
        *in_pieces("cot_id", f"cot{n}", f"cot{n}"),
        *in_pieces("state", {"key": "k", "list": [1]}, {"more": {"a": None}, "list": [2]}, None),
    ]
    function = {"name": "look", "arguments": '{"q":1}', "provider_specific_fields": {"thought_signature": f"s{n}"}}
    calls = [a_call(n, 0, thought_signature="t"), a_call(n, 1) | {"function": function}]
    state = {"key": "k", "list": [1, 2], "more": {"a": None}}
    kept = {"reasoning_opaque": f"op{n}+/=", "cot_id": f"cot{n}", "state": state}
    return frames, with_text(n, tool_calls=calls, **kept)


async def test_chunks_of_thinking_go_back_before_the_text() -> None:
    """Mistral's documentation asks for them in each later request."""

    def thought(*texts: str, **fields: Any) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts], **fields}

    deltas = in_pieces("content", [thought("I ")], [thought("I ")], [thought("think")], [thought(closed=True)])
    streamed: Frames = [*deltas, chunk(content=[{"type": "text", "text": "Lo"}]), chunk(content="ok.")]
    content = [thought("I I think", closed=True), {"type": "text", "text": "Look."}]
    whole: dict[str, Any] = {"choices": [{"message": with_text(1, content=content), "finish_reason": "tool_calls"}]}
    no_text: Frames = [*deltas, *calls_of(with_text(2))]
    bodies = await talk("chat", [[*streamed, *calls_of(with_text(0))], [whole, "[DONE]"], no_text])
    assert [message for message in bodies[3]["messages"] if message["role"] == "assistant"] == [
        with_text(0, content=content),
        with_text(1, content=content),
        with_text(2, content=content[:1]),
    ]


def a_file(name: str, text: str = "one") -> dict[str, Any]:
    """Return an annotation of OpenRouter, with what it has read from a PDF."""
    content = [{"type": "text", "text": f"<file name={name}>"}, {"type": "text", "text": text}]
    return {"type": "file", "file": {"hash": f"hash of {name}", "name": name, "content": content}}


@pytest.mark.parametrize(
    "odd", [None, "x", [None, 5, "x"], a_file("a"), [{"type": "file"}], [{"type": "file", "file": "x"}], [{"type": []}]]
)
async def test_annotations_without_a_file_do_not_go_back(odd: Any) -> None:
    bodies = await talk("chat", [[*in_pieces("annotations", odd), *calls_of(with_text(0))]])
    assert bodies[1]["messages"][1] == with_text(0)


async def test_files_that_openrouter_has_read_go_back_once() -> None:
    """Otherwise it reads them again, and charges for it. Citations need not go back."""
    cited = {"type": "url_citation", "url_citation": {"url": "https://a.test", "title": "A"}}
    first = in_pieces("annotations", [a_file("a"), cited], [a_file("a"), a_file("b")])
    second = in_pieces("annotations", [a_file("b"), a_file("c", "x" * kept_fields.MAX_FILE_CHARS), a_file("d")])
    third = in_pieces("annotations", [cited, a_file("d")])
    turns = [[*each, *calls_of(with_text(turn))] for turn, each in enumerate((first, second, third))]
    bodies = await talk("chat", turns)
    assert [message for message in bodies[3]["messages"] if message["role"] == "assistant"] == [
        with_text(0, annotations=[a_file("a"), a_file("b")]),
        with_text(1, annotations=[a_file("d")]),
        with_text(2),
    ]


EXTRAS = (
    *("reasoning", "reasoning_content", "reasoning_text", "reasoning_details", "thinking_blocks", "extra_content"),
    *("reasoning_opaque", "cot_id", "state", "thought_signature", "provider_specific_fields"),
)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(plain("reasoning"), id="reasoning"),
        pytest.param(plain("reasoning_content"), id="reasoning_content"),
        pytest.param(plain("reasoning_content", "reasoning"), id="both"),
        pytest.param(litellm, id="thinking_blocks"),
        pytest.param(details, id="reasoning_details"),
        pytest.param(gemini, id="extra_content"),
        pytest.param(unknown, id="unknown fields"),
    ],
)
async def test_chat_completions_get_the_fields_back(made: ChatTurn) -> None:
    turns = [made(turn) for turn in range(TURNS)]
    bodies = await talk("chat", [[*frames, *calls_of(message)] for frames, message in turns])
    for body in bodies:
        assert_openai_takes(body, *EXTRAS)
    sent_back = [message for message in bodies[TURNS]["messages"] if message["role"] == "assistant"]
    assert sent_back == [message for _, message in turns]


@pytest.mark.parametrize("made", [plain("reasoning", "reasoning_content"), gemini, unknown, details, litellm])
async def test_a_message_that_does_not_stream_goes_back_as_well(made: ChatTurn) -> None:
    _, message = made(1)
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    bodies = await talk("chat", [[whole, "[DONE]"]])
    assert bodies[1]["messages"][1] == message


async def test_a_signature_of_an_answer_goes_back_and_its_thinking_does_not() -> None:
    frames: Frames = [chunk(reasoning_content="hm"), chunk(content="4"), *gemini(0)[0]]
    bodies = await talk("chat", [[*frames, chunk("stop"), "[DONE]"]])
    assert bodies[1]["messages"][1] == {"role": "assistant", "content": "4"} | {
        "extra_content": gemini(0)[1]["extra_content"]
    }


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("api", "turn", "refused", "kept"),
    [
        ("messages", anthropic_turn(anthropic_content(0)), "caller", "signature"),
        ("messages", anthropic_turn(anthropic_content(0)), "web_search_tool_result", "signature"),
        ("responses", list(response_events(*response_items(0))), "mystery_item", "encrypted_content"),
        ("responses", list(response_events(*response_items(0))), "namespace", "encrypted_content"),
        ("chat", [*plain("reasoning")(0)[0], *calls_of(gemini(0)[1])], "extra_content", "tool_calls"),
        ("chat", [*details(0)[0], *calls_of(details(0)[1])], "reasoning_details", "tool_calls"),
        ("chat", [chunk(content=[THOUGHT]), *calls_of(with_text(0))], "thinking", "tool_calls"),
        ("chat", [chunk(annotations=[a_file("a")]), *calls_of(with_text(0))], "annotations", "tool_calls"),
    ],
)
async def test_a_server_that_refuses_what_it_sent_gets_none_of_it(
    api: Api, turn: Frames, refused: str, kept: str
) -> None:
    """It refuses once in three turns. Its thinking is no part of that, if the protocol has a place for it."""
    bodies = await talk(api, [turn, turn, turn], refused)
    assert refused not in json.dumps(bodies)
    assert kept in json.dumps(bodies[-1])
