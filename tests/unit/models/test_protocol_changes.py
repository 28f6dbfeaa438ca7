"""An endpoint is asked by OpenAI's other protocol if it lacks the first one, or has the model only in the other."""

import json
from dataclasses import replace

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    message_item,
    response_events,
    stream_response,
    text_response,
)

TOOLS = (ToolSpec(name="look", parameters={"type": "object"}),)


@pytest.mark.parametrize(
    "refusal",
    [
        "Function tools with reasoning_effort are not supported for {} in /v1/chat/completions. Please use "
        "/v1/responses "
        "instead.",
        "This model is only supported in v1/responses and not in v1/chat/completions.",
        "{} requires the Responses API. See https://platform.openai.com/docs/guides/migrate.",
    ],
)
@pytest.mark.parametrize("status", [400, 404])
async def test_a_refusal_that_points_to_responses_is_followed_and_remembered(refusal: str, status: int) -> None:
    """The endpoint remembers it, so another model there is not refused first."""

    def server(request: http.Request) -> http.Response:
        model = json.loads(request.content)["model"]
        asked.append((model, request.url.path))
        if request.url.path.endswith("/chat/completions"):
            return http.Response(status, json={"error": {"message": refusal.format(model)}})
        return stream_response(*response_events(message_item("hi")))

    asked: list[tuple[str, str]] = []
    registry = ModelRegistry({"OPENAI_COMPATIBLE_BASE_URL": "http://gw/v1"}, transport=http.MockTransport(server))
    for name in ("a", "a", "b"):
        provider, model = registry.resolve(f"openai-compatible:{name}")
        assert (await provider.complete(a_request(model=model), lambda text: None)).text == "hi"
    await registry.close()
    assert asked == [
        ("a", "/v1/chat/completions"),
        ("a", "/v1/responses"),
        ("a", "/v1/responses"),
        ("b", "/v1/responses"),
    ]


ABSENT = [
    http.Response(404, json={"detail": "Not Found"}),
    http.Response(404, text="404 page not found"),
    http.Response(405, text="Method Not Allowed"),
    http.Response(501, json={"error": {"message": "not implemented"}}),
    http.Response(404, text="<pre>Cannot POST /models/v1</pre>"),
    http.Response(200, json={"error": "Unexpected endpoint or method. (POST /v1)"}),  # LM Studio
]
"""Answers of servers that lack a protocol. They name no other one."""

GATEWAY = "http://gw/v1"


async def paths_of_two_calls(name: str, absent: str, answer: http.Response, request: ModelRequest) -> list[str]:
    """Return the paths that two calls ask at a server which gives `answer` at `absent`."""

    def server(sent: http.Request) -> http.Response:
        asked.append(sent.url.path.removeprefix("/v1"))
        served = text_response("responses" if asked[-1] == "/responses" else "chat")
        return answer if asked[-1] == absent else served

    asked: list[str] = []
    env = {"OPENAI_API_KEY": "a-key-of-some-length", "OPENAI_BASE_URL": GATEWAY}
    env |= {"OPENAI_COMPATIBLE_BASE_URL": GATEWAY}
    registry = ModelRegistry(env, transport=http.MockTransport(server))
    provider, model = registry.resolve(f"{name}:m")
    for _ in range(2):
        assert (await provider.complete(replace(request, model=model), lambda text: None)).text == "hi"
    await registry.close()
    return asked


@pytest.mark.parametrize(
    "answer",
    [
        *ABSENT,
        http.Response(404, json={"error": {"message": "Invalid URL (POST /v1/responses)"}}),
        http.Response(400, json={"error": {"message": "The Responses API is not supported for this model."}}),
        http.Response(400, json={"error": {"message": "This model is only supported in v1/chat/completions."}}),
    ],
)
async def test_openai_falls_back_to_chat_completions_if_responses_is_missing(answer: http.Response) -> None:
    paths = await paths_of_two_calls("openai", "/responses", answer, a_request())
    assert paths == ["/responses", "/chat/completions", "/chat/completions"]


@pytest.mark.parametrize(
    "answer", [*ABSENT, http.Response(404, json={"error": {"message": "Invalid URL (POST /v1/chat/completions)"}})]
)
async def test_a_compatible_server_without_chat_completions_is_asked_for_responses(answer: http.Response) -> None:
    paths = await paths_of_two_calls("openai-compatible", "/chat/completions", answer, a_request(tools=TOOLS))
    assert paths == ["/chat/completions", "/responses", "/responses"]


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("openai-compatible", 404, "The model `m` does not exist"),
        ("openai-compatible", 404, "Model not found, inaccessible, and/or not deployed"),
        ("openai-compatible", 404, "The API deployment for this resource does not exist"),
        ("openai-compatible", 404, "No endpoints found for m"),
        ("openai-compatible", 400, "Invalid value for 'n' in /v1/chat/completions"),
        ("openai-compatible", 500, "/v1/chat/completions: upstream failed"),
        ("openrouter", 404, "No endpoints found matching your data policy"),
        ("ollama", 404, "page not found"),
    ],
)
async def test_a_refusal_by_a_server_with_chat_completions_asks_nothing_else(name: str, status: int, text: str) -> None:
    network = Network([http.Response(status, json={"error": {"message": text}})])
    env = {"OPENAI_COMPATIBLE_BASE_URL": GATEWAY, "OPENROUTER_API_KEY": "a-key-of-some-length"}
    registry = ModelRegistry(env, transport=http.MockTransport(network))
    provider, model = registry.resolve(f"{name}:m")
    with pytest.raises(ModelError, match=f"answered {status}"):
        await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert [each.url.path[-17:] for each in network.requests if each.method == "POST"] == ["/chat/completions"]


async def test_an_address_without_its_version_is_a_final_failure_with_its_remedy() -> None:
    """LM Studio answers 200 at any address."""
    network = Network([http.Response(200, json={"error": "Unexpected endpoint or method. (POST /chat/completions)"})])
    env = {"OPENAI_COMPATIBLE_BASE_URL": "http://gw"}
    registry = ModelRegistry(env, transport=http.MockTransport(network))
    provider, model = registry.resolve("openai-compatible:m")
    with pytest.raises(ModelError, match=r"at http://gw \(most servers need an address that ends in /v1\)") as raised:
        await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert not raised.value.retryable


async def test_a_server_that_has_answered_keeps_its_protocol() -> None:
    network = Network([text_response("chat"), http.Response(404, json={"detail": "Not Found"})])
    registry = ModelRegistry({"OPENAI_COMPATIBLE_BASE_URL": GATEWAY}, transport=http.MockTransport(network))
    provider, model = registry.resolve("openai-compatible:m")
    await provider.complete(a_request(model=model), lambda text: None)
    with pytest.raises(ModelError, match="answered 404"):
        await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert len(network.requests) == 2


async def test_a_failure_in_the_middle_of_a_reply_changes_no_protocol() -> None:
    failed = {"error": {"message": "Not Found", "code": 404}}
    network = Network([stream_response(chunk(content="Hel"), failed), text_response("responses")])
    registry = ModelRegistry({"OPENAI_COMPATIBLE_BASE_URL": GATEWAY}, transport=http.MockTransport(network))
    provider, model = registry.resolve("openai-compatible:m")
    with pytest.raises(ModelError, match="broke off its reply"):
        await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert len(network.requests) == 1


async def test_a_form_that_the_model_refuses_is_left_out_before_another_protocol_is_tried() -> None:
    """A router that passes on to OpenRouter answers 404 if no server of the model has tools."""
    refusal = http.Response(404, json={"error": {"message": "No endpoints found that support tool use."}})
    network = Network([refusal, text_response("chat")])
    registry = ModelRegistry({"OPENAI_COMPATIBLE_BASE_URL": GATEWAY}, transport=http.MockTransport(network))
    provider, model = registry.resolve("openai-compatible:m")
    await provider.complete(a_request(model=model, tools=TOOLS), lambda text: None)
    await registry.close()
    assert [each.url.path for each in network.requests] == ["/v1/chat/completions"] * 2
    assert "tools" not in network.body()


@pytest.mark.parametrize(
    ("status", "text", "requests"),
    [
        pytest.param(404, "The model `m` does not exist", 1, id="no model"),
        pytest.param(404, "nothing here", 2, id="no such address"),
        pytest.param(400, "Invalid 'input'. See https://x.test/docs/chat/completions", 1, id="a link to a page"),
        pytest.param(401, "no access to /v1/chat/completions", 1, id="no access"),
        pytest.param(502, "/v1/responses: upstream failed, try chat/completions", 1, id="a failure"),
    ],
)
async def test_a_refusal_without_another_address_fails(status: int, text: str, requests: int) -> None:
    network = Network([http.Response(status, json={"error": {"message": text}})])
    env = {"OPENAI_API_KEY": "a-key-of-some-length"}
    registry = ModelRegistry(env, transport=http.MockTransport(network))
    provider, model = registry.resolve("openai:m")
    with pytest.raises(ModelError, match=f"answered {status}"):
        await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert len(network.requests) == requests
