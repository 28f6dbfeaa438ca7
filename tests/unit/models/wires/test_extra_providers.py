"""Bedrock, Vertex and Gemini over the real classes of pydantic-ai, against a scripted server."""

import asyncio
import json
import re
import subprocess
import sys
import time
import tomllib
from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry
from orga.activities.media import Media, keep_media
from orga.activities.ports import ModelError, ModelProvider
from orga.client.cli.main import run_command
from orga.client.config.known_input import model_problem
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.cloud_server import (
    BEDROCK_HEADERS,
    GEMINI_HEADERS,
    CloudServer,
    Scripted,
    aws_event,
    bedrock,
    bedrock_events,
    block_events,
    call_block,
    cloud_server,
    gemini,
    gemini_chunk,
    refusal,
    text_block,
    thought_block,
)
from tests.support.model.providers import a_request
from tests.support.values.pdfs import a_pdf
from tests.support.values.pictures import a_png

GUIDE = Path(__file__).parents[4] / "docs" / "models.md"
CLAUDE, NOVA = "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.amazon.nova-lite-v1:0"
GEMINI = "gemini-3-pro-preview"
KEY = "a-key-that-nobody-may-read"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-read",
    "AWS_REGION": "eu-west-1",
    "GEMINI_API_KEY": KEY,
    "GOOGLE_API_KEY": KEY,
}
SEARCH = ToolSpec(
    name="search",
    description="Find it.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
HEADERS = {"bedrock": BEDROCK_HEADERS, "gemini": GEMINI_HEADERS}
MODELS = {"bedrock": CLAUDE, "gemini": GEMINI, "vertex": GEMINI}


@asynccontextmanager
async def asked(
    provider: str, served: CloudServer, env: dict[str, str] | None = None, **settings: Any
) -> AsyncGenerator[ModelProvider]:
    endpoints = {provider: EndpointSettings(**settings)}
    registry = ModelRegistry(ENVIRONMENT if env is None else env, {provider: served.url}, endpoints=endpoints)
    try:
        yield registry.resolve(f"{provider}:{MODELS[provider]}")[0]
    finally:
        await registry.close()


SHARED: list[tuple[CloudServer, ModelRegistry, BlobFolder]] = []
"""The server and the clients of most tests, because a client of boto3 takes long to make."""


@pytest.fixture(scope="module", autouse=True)
async def shared_clients(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[None]:
    blobs = BlobFolder(tmp_path_factory.mktemp("state") / "blobs")
    import_module("orga.activities.adapters.models.extra.pydantic_ai_models")  # takes seconds, which no test may count
    async with cloud_server() as served:
        registry = ModelRegistry(ENVIRONMENT, dict.fromkeys(MODELS, served.url), blobs=blobs)
        SHARED.append((served, registry, blobs))
        yield
        SHARED.clear()
        await registry.close()


async def replied(
    provider: str, *answers: Scripted, model: str | None = None, **fields: Any
) -> tuple[Reply, CloudServer, str]:
    seen: list[str] = []
    served, registry, _ = SHARED[0]
    served.begin(answers)
    found, name = registry.resolve(f"{provider}:{model or MODELS[provider]}")
    reply = await found.complete(a_request(model=name, **fields), seen.append)
    return reply, served, "".join(seen)


async def failed(provider: str, *answers: Scripted, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await replied(provider, *answers, **fields)
    assert "nobody-may-read" not in str(raised.value)
    return raised.value


def greeting(provider: str) -> Scripted:
    return (
        bedrock(text_block("Hel", "lo"))
        if provider == "bedrock"
        else gemini(gemini_chunk({"text": "Hel"}), gemini_chunk({"text": "lo"}, finish="STOP"))
    )


# What is sent


@pytest.mark.parametrize(("provider", "data"), [("bedrock", "bytes"), ("gemini", "data")])
async def test_pictures_and_documents_are_sent_also_after_results(provider: str, data: str) -> None:
    store = SHARED[0][2]
    picture, paper = [await keep_media(Media(each), store) for each in (a_png(), a_pdf("x"))]
    messages = (
        Message.of("user", "compare").with_media((paper,)),
        Message.of("assistant", "", (ToolCall(call_id="c1", name="search"), ToolCall(call_id="c2", name="search"))),
        Message.of_result("shown", "c1", "search").with_media((picture,)),
        Message.of_result("ok", "c2", "search"),
    )
    _, served, _ = await replied(provider, greeting(provider), messages=messages, tools=(SEARCH,))
    body = json.dumps(served.bodies[-1])
    sent = [found for found in re.findall(rf'"{data}": "([A-Za-z0-9+/=_-]+)"', body) if len(found) > 60]
    assert [urlsafe_b64decode(each.replace("+", "-").replace("/", "_")) for each in sent] == [a_pdf("x"), a_png()]
    assert body.index("shown") < body.index('"ok"') < body.index("From the result of search above")


async def test_bedrock_gets_the_conversation_with_its_tools_and_settings() -> None:
    _, served, _ = await replied(
        "bedrock",
        bedrock(text_block("Done.")),
        system=("You help.", ""),
        messages=(
            Message.of("user", "find a and b"),
            Message.of("system", "Be brief."),
            Message.of(
                "assistant",
                "Looking.",
                (
                    ToolCall(call_id="c1", name="search", arguments={"q": "a"}),
                    ToolCall(call_id="c/2", name="search", arguments={"q": "b"}),
                ),
            ),
            Message.of_result("found", "c1", "search"),
            Message.of("user", "hurry"),
            Message.of_result(" ", "c/2", "search", is_error=True),
        ),
        tools=(SEARCH,),
        tool_choice="any",
        max_output_tokens=999,
        settings=ModelSettings(temperature=0.0, top_p=0.5, stop=("END", " "), seed=1, cache_ttl="1h"),
    )
    body = served.bodies[0]
    assert served.paths == ["/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"]
    assert served.headers[0]["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/")
    assert [each["text"] for each in body["system"] if "text" in each] == ["You help.", "Be brief."]
    assert body["inferenceConfig"] == {"maxTokens": 999, "temperature": 0.0, "topP": 0.5, "stopSequences": ["END"]}
    assert body["toolConfig"]["toolChoice"] == {"any": {}}
    assert body["toolConfig"]["tools"][0]["toolSpec"] == {
        "name": "search",
        "description": "Find it.",
        "inputSchema": {"json": SEARCH.parameters},
    }
    user, assistant, results = body["messages"]
    other = assistant["content"][2]["toolUse"]["toolUseId"]
    assert user == {"role": "user", "content": [{"text": "find a and b"}]}
    assert assistant["content"] == [
        {"text": "Looking."},
        {"toolUse": {"toolUseId": "c1", "name": "search", "input": {"q": "a"}}},
        {"toolUse": {"toolUseId": other, "name": "search", "input": {"q": "b"}}},
    ]
    assert results["content"] == [
        {"toolResult": {"toolUseId": "c1", "content": [{"text": "found"}], "status": "success"}},
        {"toolResult": {"toolUseId": other, "content": [{"text": "[no output]"}], "status": "error"}},
        {"text": "hurry"},
        {"cachePoint": {"type": "default", "ttl": "1h"}},
    ]


async def test_gemini_gets_the_conversation_with_its_tools_and_settings() -> None:
    _, served, _ = await replied(
        "gemini",
        greeting("gemini"),
        system=("You help.",),
        messages=(
            Message.of("user", "find a"),
            Message.of("assistant", "", (ToolCall(call_id="c1", name="search", arguments={"q": "a"}),)),
            Message.of_result("nothing", "c1", "search", is_error=True),
        ),
        tools=(SEARCH,),
        tool_choice="any",
        max_output_tokens=999,
        settings=ModelSettings(temperature=0.0, top_p=0.5, stop=("END",), seed=7, thinking_tokens=300),
    )
    body = served.bodies[0]
    assert served.paths == [f"/v1beta/models/{GEMINI}:streamGenerateContent?alt=sse"]
    assert served.headers[0]["x-goog-api-key"] == KEY
    assert body["systemInstruction"]["parts"] == [{"text": "You help."}]
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
    assert body["tools"][0]["functionDeclarations"][0]["parameters_json_schema"] == SEARCH.parameters
    sent = body["generationConfig"]
    assert {name: sent[name] for name in ("maxOutputTokens", "temperature", "topP", "stopSequences", "seed")} == {
        "maxOutputTokens": 999,
        "temperature": 0.0,
        "topP": 0.5,
        "stopSequences": ["END"],
        "seed": 7,
    }
    assert sent["thinkingConfig"] == {"thinking_budget": 300, "include_thoughts": True}
    call, result = body["contents"][1]["parts"][0], body["contents"][2]["parts"][0]["functionResponse"]
    assert call["functionCall"] == {"name": "search", "args": {"q": "a"}, "id": "c1"}
    assert result == {"name": "search", "id": "c1", "response": {"error": "nothing"}}


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_settings_that_are_not_set_are_not_sent(provider: str) -> None:
    _, served, _ = await replied(provider, greeting(provider))
    body = served.bodies[0]
    sent = body.get("inferenceConfig") or body["generationConfig"]
    assert set(sent) <= {"maxTokens", "maxOutputTokens", "responseModalities"}
    assert not {"toolConfig", "tools", "additionalModelRequestFields", "serviceTier"} & body.keys()


ADAPTIVE = "global.anthropic.claude-sonnet-5-5"


@pytest.mark.parametrize(
    ("model", "settings", "sent"),
    [
        (CLAUDE, {"effort": "low"}, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        (CLAUDE, {"effort": "max"}, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        (CLAUDE, {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        (CLAUDE, {"thinking_tokens": 2_000}, {"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
        (ADAPTIVE, {"effort": "high"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("openai.gpt-oss-120b-1:0", {"thinking_tokens": 2_000}, {"reasoning_effort": "low"}),
        (GEMINI, {"effort": "high"}, {"thinking_level": "HIGH", "include_thoughts": True}),
        (GEMINI, {"effort": "low"}, {"thinking_level": "LOW", "include_thoughts": True}),
        (GEMINI, {"thinking_tokens": 300}, {"thinking_budget": 300, "include_thoughts": True}),
        ("gemini-2.5-flash", {"effort": "max"}, {"thinking_budget": 2_048, "include_thoughts": True}),
        ("gemini-2.5-flash", {"effort": "none"}, {"thinking_budget": 0}),
        ("gemini-2.5-pro", {"effort": "none"}, {"thinking_budget": 128}),
    ],
    ids=str,
)
async def test_the_thinking_has_the_form_of_the_model_and_leaves_room(
    model: str, settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    provider = "gemini" if model.startswith("gemini") else "bedrock"
    _, served, _ = await replied(provider, greeting(provider), model=model, settings=ModelSettings(**settings))
    body = served.bodies[0]
    found = (
        body["additionalModelRequestFields"] if provider == "bedrock" else body["generationConfig"]["thinkingConfig"]
    )
    assert found == sent


async def test_tools_that_only_the_conversation_knows_are_named_to_bedrock_and_not_called() -> None:
    calls = (ToolCall(call_id="c1", name="gone"),)
    messages = (Message.of("user", "go"), Message.of("assistant", "", calls), Message.of_result("done", "c1", "gone"))
    _, served, _ = await replied("bedrock", bedrock(text_block("ok")), messages=messages)
    body = served.bodies[0]
    assert [each["toolSpec"]["name"] for each in body["toolConfig"]["tools"] if "toolSpec" in each] == ["gone"]
    assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_a_schema_is_sent_to_models_that_enforce_it(provider: str) -> None:
    _, served, _ = await replied(provider, greeting(provider), tools=(SEARCH,), output_schema=SCHEMA)
    body = served.bodies[0]
    if provider == "bedrock":
        form = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]
        assert json.loads(form)["properties"] == SCHEMA["properties"]
    else:
        assert body["generationConfig"]["responseJsonSchema"]["properties"] == SCHEMA["properties"]
        assert body["generationConfig"]["responseMimeType"] == "application/json"


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("global.anthropic.claude-sonnet-5-5", {}),
        (CLAUDE, {"effort": "high"}),
        ("us.meta.llama4-scout-17b-instruct-v1:0", {}),
        ("openai.gpt-oss-120b-1:0", {"effort": "none"}),
    ],
)
async def test_a_call_is_not_forced_if_the_model_cannot_be(model: str, settings: dict[str, Any]) -> None:
    fields = {"tools": (SEARCH,), "tool_choice": "any", "settings": ModelSettings(**settings)}
    reply, served, _ = await replied("bedrock", greeting("bedrock"), model=model, **fields)
    assert reply.text == "Hello"
    assert served.bodies[0]["toolConfig"].get("toolChoice") in (None, {"auto": {}})


async def test_other_models_give_the_answer_by_a_tool() -> None:
    call = call_block("c1", "final_answer", '{"city": "Oslo"}')
    reply, served, _ = await replied("bedrock", bedrock(call, stop="tool_use"), model=NOVA, output_schema=SCHEMA)
    assert (json.loads(reply.text), reply.calls, reply.finish) == ({"city": "Oslo"}, (), "stop")
    assert served.bodies[0]["toolConfig"]["toolChoice"] == {"any": {}}


def examples() -> dict[str, ModelSettings]:
    """Return the guide's agents by their models."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Bedrock, Vertex and Gemini")[2].partition("\n## ")[0]
    blocks = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)]
    agents = [OrgaConfig.model_validate(block).agents for block in blocks]
    return {agent.model or "": agent.config for each in agents for agent in each.values()}


EXAMPLES = {
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0": ("messages", {"type": "default", "ttl": "1h"}),
    "gemini:gemini-3-pro-preview": ("generationConfig", "LOW"),
    "vertex:gemini-2.5-flash": ("generationConfig", 2_000),
}
"""The part of the request that shows the setting of each example, and its value there."""


@pytest.mark.parametrize("name", EXAMPLES)
async def test_each_example_of_the_guide_is_sent_with_its_setting(name: str) -> None:
    provider, _, model = name.partition(":")
    request = {"settings": examples()[name], "tools": (SEARCH,)}
    reply, served, _ = await replied(provider, greeting(provider), model=model, **request)
    part, value = EXAMPLES[name]
    assert reply.text == "Hello"
    assert json.dumps(value) in json.dumps(served.bodies[0][part])


def test_the_guide_has_an_example_for_each_provider() -> None:
    assert set(examples()) == set(EXAMPLES)


async def test_extra_fields_and_headers_of_the_endpoint_are_sent() -> None:
    async with (
        cloud_server(bedrock(text_block("ok"))) as served,
        asked("bedrock", served, extra_body={"top_k": 5}, extra_headers={"X-Team": "blue"}) as found,
    ):
        await found.complete(a_request(model=CLAUDE), lambda text: None)
    assert served.bodies[0]["additionalModelRequestFields"] == {"top_k": 5}
    assert served.headers[0]["x-team"] == "blue"


# Keys


async def test_a_bedrock_key_is_sent_as_a_bearer_token() -> None:
    env = {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "us-east-1"}
    async with cloud_server(bedrock(text_block("ok"))) as served, asked("bedrock", served, env) as found:
        assert (await found.complete(a_request(model=CLAUDE), lambda text: None)).text == "ok"
    assert served.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_vertex_takes_a_key() -> None:
    reply, served, _ = await replied("vertex", greeting("vertex"))
    assert reply.text == "Hello"
    assert served.headers[0]["x-goog-api-key"] == KEY
    assert served.paths[0].split("?")[0].endswith(f"publishers/google/models/{GEMINI}:streamGenerateContent")


async def test_vertex_gets_a_token_for_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    async with cloud_server(greeting("vertex")) as served:
        account = {
            "type": "service_account",
            "client_email": "me@p.test",
            "token_uri": f"{served.url}/token",
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        }
        file = tmp_path / "account.json"
        file.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        env = {
            "GOOGLE_APPLICATION_CREDENTIALS": str(file),
            "GOOGLE_CLOUD_PROJECT": "my-project",
            "GOOGLE_CLOUD_LOCATION": "europe-west1",
        }
        async with asked("vertex", served, env) as found:
            assert (await found.complete(a_request(model=GEMINI), lambda text: None)).text == "Hello"
    assert served.headers[0]["authorization"] == "Bearer fresh"
    assert "/projects/my-project/locations/europe-west1/publishers/google/models/" in served.paths[0]


async def test_missing_credentials_are_a_final_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    async with cloud_server() as served, asked("bedrock", served, {"AWS_REGION": "eu-west-1"}) as found:
        with pytest.raises(ModelError, match="Unable to locate credentials") as raised:
            await found.complete(a_request(model=CLAUDE), lambda text: None)
    assert (raised.value.kind, raised.value.retryable) == ("AuthenticationFailed", False)


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (f"bedrock:{CLAUDE}", "bedrock has no valid region: set AWS_REGION"),
        (f"gemini:{GEMINI}", "gemini has no key: set GEMINI_API_KEY"),
    ],
)
def test_a_missing_setting_is_reported_before_a_run_starts(model: str, missing: str) -> None:
    assert missing in model_problem(model, {}, ModelsConfig())


# What is read


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_a_reply_has_its_text_its_tokens_and_its_cost(provider: str) -> None:
    counts: dict[str, int] = {"inputTokens": 10, "outputTokens": 8, "totalTokens": 18, "cacheReadInputTokens": 4}
    answer = bedrock(text_block("Hel", "lo"), usage=counts)
    if provider == "gemini":
        usage = {
            "promptTokenCount": 14,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 4,
        }
        answer = gemini(gemini_chunk({"text": "Hel"}), gemini_chunk({"text": "lo"}, finish="STOP", usage=usage))
    reply, _, seen = await replied(provider, answer)
    assert (reply.text, seen, reply.finish, reply.model) == ("Hello", "Hello", "stop", None)
    used = reply.usage
    assert (used.input_tokens, used.output_tokens, used.cached_input_tokens, used.estimated) == (14, 8, 4, False)
    assert used.thinking_tokens == (3 if provider == "gemini" else 0)
    assert 0 < (reply.cost_usd or 0) < 0.001


@pytest.mark.parametrize(
    ("provider", "end", "finish"),
    [
        ("bedrock", "end_turn", "stop"),
        ("bedrock", "stop_sequence", "stop"),
        ("bedrock", "max_tokens", "length"),
        ("bedrock", "model_context_window_exceeded", "length"),
        ("bedrock", "guardrail_intervened", "content_filter"),
        ("gemini", "MAX_TOKENS", "length"),
        ("gemini", "SAFETY", "content_filter"),
        ("gemini", "OTHER", "stop"),
    ],
)
async def test_each_end_has_its_reason(provider: str, end: str, finish: str) -> None:
    answer = gemini(gemini_chunk({"text": "x"}, finish=end))
    reply, _, _ = await replied(provider, bedrock(text_block("x"), stop=end) if provider == "bedrock" else answer)
    assert (reply.text, reply.finish) == ("x", finish)


async def test_a_blocked_prompt_is_withheld() -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": GEMINI}
    reply, _, _ = await replied("gemini", gemini(f"data: {json.dumps(blocked)}\r\n\r\n".encode()))
    assert (reply.parts, reply.finish) == ((), "content_filter")


def calls_of(reply: Reply) -> list[tuple[str, dict[str, Any], bool]]:
    return [(call.call_id, call.arguments, call.malformed is not None) for call in reply.calls]


NOTHING: dict[str, str] = {}
A, B = call_block("a", "search", '{"q": ', '"a"}'), call_block("b", "search", '{"q": "b"}')


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        ([*block_events(0, A), *block_events(0, B)], [("a", {"q": "a"}, False), ("b", {"q": "b"}, False)]),
        ([*block_events(0, A)[:-1], *block_events(0, B)], [("a", {"q": "a"}, False), ("b", {"q": "b"}, False)]),
        (
            [*block_events(0, [A[0], B[0], *A[1:], *B[1:]])],
            [("a", NOTHING, False), ("b", NOTHING, True)],
        ),
        (block_events(0, [*A, *B[1:]]), [("a", NOTHING, True)]),
    ],
    ids=["one after the other", "without an end between them", "interleaved", "two objects in one call"],
)
async def test_calls_under_one_index_are_never_merged(events: list[bytes], calls: list[Any]) -> None:
    whole = bedrock_events(stop="tool_use")
    reply, _, _ = await replied("bedrock", Scripted([whole[0], *events, *whole[1:]], headers=BEDROCK_HEADERS))
    assert calls_of(reply) == calls


async def test_calls_with_one_id_stay_two() -> None:
    one, two = ({"functionCall": {"id": "x", "name": "search", "args": {"q": each}}} for each in "ab")
    reply, _, _ = await replied("gemini", gemini(gemini_chunk(one), gemini_chunk(two, finish="STOP")))
    assert calls_of(reply) == [("x", {"q": "a"}, False), ("call_1", {"q": "b"}, False)]
    assert reply.finish == "tool_calls"


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_signatures_go_back_in_their_place_over_ten_turns(provider: str) -> None:
    answers: list[Scripted] = []
    for turn in range(10):
        ids = f"c{turn}a", f"c{turn}b"
        if provider == "bedrock":
            redacted = [{"delta": {"reasoningContent": {"redactedContent": "aGlkZGVu"}}}]
            calls = [call_block(each, "search", '{"q": "x"}') for each in ids]
            answers.append(
                bedrock(
                    thought_block(f"hm {turn}", f"sig {turn}"), redacted, text_block("So."), *calls, stop="tool_use"
                )
            )
        else:
            sign = {"thoughtSignature": f"c2ln{turn:04}"}
            one, two = ({"functionCall": {"id": each, "name": "search", "args": {"q": "x"}}} for each in ids)
            answers.append(
                gemini(
                    gemini_chunk({"text": f"hm {turn}", "thought": True}), gemini_chunk(one | sign, two, finish="STOP")
                )
            )
    messages = [Message.of("user", "go")]
    async with cloud_server(*answers) as served, asked(provider, served) as found:
        for _ in range(10):
            request = a_request(model=MODELS[provider], messages=tuple(messages), tools=(SEARCH,))
            reply = await found.complete(request, lambda text: None)
            stored = Message.model_validate_json(reply.message().model_dump_json(exclude_unset=True))
            messages += [stored, *(Message.of_result("r", call.call_id, "search") for call in reply.calls)]
    last = served.bodies[-1]
    if provider == "bedrock":
        turns = [each["content"] for each in last["messages"] if each["role"] == "assistant"]
        kept = [[next(iter(block)) for block in turn] for turn in turns]
        assert kept == [["reasoningContent", "reasoningContent", "text", "toolUse", "toolUse"]] * 9
        thoughts = [turn[0]["reasoningContent"]["reasoningText"] for turn in turns]
        assert thoughts == [{"text": f"hm {turn}", "signature": f"sig {turn}"} for turn in range(9)]
        assert {turn[1]["reasoningContent"]["redactedContent"] for turn in turns} == {"aGlkZGVu"}
    else:
        turns = [each["parts"] for each in last["contents"] if each["role"] == "model"]
        assert [turn[0] for turn in turns] == [{"text": f"hm {turn}", "thought": True} for turn in range(9)]
        assert [turn[1]["thoughtSignature"] for turn in turns] == [f"c2ln{turn:04}" for turn in range(9)]
        assert [[part["functionCall"]["id"] for part in turn[1:]] for turn in turns] == [
            [f"c{turn}a", f"c{turn}b"] for turn in range(9)
        ]
        assert not any("thoughtSignature" in turn[2] for turn in turns)


async def test_a_signature_on_the_last_empty_text_goes_back() -> None:
    end = gemini_chunk({"text": "", "thoughtSignature": "c2ln"}, finish="STOP")
    first, _, _ = await replied("gemini", gemini(gemini_chunk({"text": "Hi"}), end))
    messages = (Message.of("user", "a"), first.message(), Message.of("user", "b"))
    _, served, _ = await replied("gemini", greeting("gemini"), messages=messages)
    assert served.bodies[0]["contents"][1]["parts"] == [{"text": "Hi", "thoughtSignature": "c2ln"}]


async def test_thinking_of_another_provider_is_left_out() -> None:
    thought, _, _ = await replied("bedrock", bedrock(thought_block("hm", "sig"), text_block("So.")))
    messages = (Message.of("user", "a"), thought.message(), Message.of("user", "b"))
    _, served, _ = await replied("gemini", greeting("gemini"), messages=messages)
    assert served.bodies[0]["contents"][1]["parts"] == [{"text": "So."}]


async def test_refused_thinking_is_left_out_and_the_request_repeated() -> None:
    thought, _, _ = await replied("bedrock", bedrock(thought_block("hm", "sig"), text_block("So.")))
    messages = (Message.of("user", "a"), thought.message(), Message.of("user", "b"))
    stale = {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}
    answers = refusal(400, stale, "x-amzn-errortype: ValidationException"), greeting("bedrock")
    reply, served, _ = await replied("bedrock", *answers, messages=messages)
    assert (reply.text, len(served.bodies)) == ("Hello", 2)
    assert served.bodies[1]["messages"][1]["content"] == [{"text": "So."}]


# Failures


def aws(status: int, code: str, message: str = "no", *headers: str) -> Scripted:
    return refusal(status, {"message": message}, f"x-amzn-errortype: {code}", *headers)


def google(status: int, name: str, message: str = "no", *details: dict[str, Any]) -> Scripted:
    return refusal(status, {"error": {"code": status, "message": message, "status": name, "details": details}})


FAILURES: dict[str, tuple[str, Scripted, str, bool, float | None]] = {
    "bedrock, rate": ("bedrock", aws(429, "ThrottlingException", "slow", "retry-after: 7"), "RateLimited", True, 7.0),
    "bedrock, signature": ("bedrock", aws(403, "UnrecognizedClientException"), "AuthenticationFailed", False, None),
    "bedrock, access": ("bedrock", aws(403, "AccessDeniedException"), "PermissionDenied", False, None),
    "bedrock, model": ("bedrock", aws(404, "ResourceNotFoundException"), "ModelNotFound", False, None),
    "bedrock, bad model": (
        "bedrock",
        aws(400, "ValidationException", "The provided model identifier is invalid."),
        "ModelNotFound",
        False,
        None,
    ),
    "bedrock, overflow": (
        "bedrock",
        aws(400, "ValidationException", "Input is too long for requested model."),
        "ContextOverflow",
        False,
        None,
    ),
    "bedrock, request": ("bedrock", aws(400, "ValidationException", "bad"), "InvalidRequest", False, None),
    "bedrock, quota": ("bedrock", aws(400, "ServiceQuotaExceededException"), "OutOfQuota", False, None),
    "bedrock, server": ("bedrock", aws(500, "InternalServerException"), "ServerError", True, None),
    "bedrock, model error": ("bedrock", aws(424, "ModelStreamErrorException"), "ServerError", True, None),
    "bedrock, slow model": ("bedrock", aws(408, "ModelTimeoutException"), "Timeout", True, None),
    "bedrock, overload": ("bedrock", aws(503, "ServiceUnavailableException"), "Overloaded", True, None),
    "gemini, rate": (
        "gemini",
        google(429, "RESOURCE_EXHAUSTED", "slow", {"@type": "RetryInfo", "retryDelay": "21s"}),
        "RateLimited",
        True,
        21.0,
    ),
    "gemini, key": (
        "gemini",
        google(400, "INVALID_ARGUMENT", f"API key not valid: {KEY}", {"reason": "API_KEY_INVALID"}),
        "AuthenticationFailed",
        False,
        None,
    ),
    "gemini, access": ("gemini", google(403, "PERMISSION_DENIED"), "PermissionDenied", False, None),
    "gemini, model": ("gemini", google(404, "NOT_FOUND"), "ModelNotFound", False, None),
    "gemini, overflow": (
        "gemini",
        google(
            400,
            "INVALID_ARGUMENT",
            "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
        ),
        "ContextOverflow",
        False,
        None,
    ),
    "gemini, overload": ("gemini", google(503, "UNAVAILABLE", "The model is overloaded."), "Overloaded", True, None),
    "gemini, server": ("gemini", google(500, "INTERNAL"), "ServerError", True, None),
    "bedrock, redirect": ("bedrock", Scripted(status=302), "InvalidRequest", False, None),
    "gemini, redirect": ("gemini", Scripted(status=302), "InvalidRequest", False, None),
    "gemini, not JSON": ("gemini", Scripted([b"<html>no</html>"], status=502), "ServerError", True, None),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_refusal_has_its_kind_and_its_wait(case: str) -> None:
    provider, answer, kind, retryable, wait = FAILURES[case]
    error = await failed(provider, answer, answer)  # after an overflow, a smaller output limit is tried
    assert (error.kind, error.retryable, error.retry_after_s) == (kind, retryable, wait)
    assert str(error).startswith(f"{provider} ")


@pytest.mark.parametrize("model", ["../x", "a?b=c", "a/../../b"])
async def test_a_name_that_cannot_be_in_an_address_is_a_final_failure(model: str) -> None:
    error = await failed("gemini", model=model)
    assert (error.kind, error.retryable) == ("InvalidRequest", False)


@pytest.mark.parametrize("proxy", ["gopher://me:nobody-may-read@proxy", "socks5://me:nobody-may-read@proxy"])
@pytest.mark.parametrize("provider", MODELS)
def test_a_proxy_that_cannot_be_used_is_reported(provider: str, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ModelNotConfigured, match=f"{provider} can't be reached through the proxy") as raised:
        ModelRegistry(ENVIRONMENT).resolve(f"{provider}:{MODELS[provider]}")
    assert "nobody-may-read" not in str(raised.value)


async def test_a_failure_is_not_repeated_by_the_library() -> None:
    for provider, answer in (("bedrock", aws(500, "InternalServerException")), ("gemini", google(503, "UNAVAILABLE"))):
        async with cloud_server(answer, greeting(provider)) as served, asked(provider, served) as found:
            with pytest.raises(ModelError):
                await found.complete(a_request(model=MODELS[provider]), lambda text: None)
        assert len(served.bodies) == 1


WHOLE = bedrock_events(text_block("Hel", "lo"))
BROKEN: dict[str, tuple[str, Sequence[bytes], bool]] = {
    "bedrock without its end": ("bedrock", WHOLE[:-2], False),
    "bedrock in the middle of an event": ("bedrock", [*WHOLE[:2], WHOLE[2][:20]], False),
    "bedrock with a closed connection": ("bedrock", WHOLE[:3], True),
    "bedrock with a wrong checksum": ("bedrock", [*WHOLE[:2], WHOLE[2][:-1] + b"!"], False),
    "bedrock with nothing": ("bedrock", (), False),
    "bedrock with a call that it cannot read": ("bedrock", bedrock_events(stop="malformed_tool_use"), False),
    "gemini without its end": ("gemini", [gemini_chunk({"text": "Hel"})], False),
    "gemini in the middle of an event": ("gemini", [gemini_chunk({"text": "Hel"}), b'data: {"candi'], False),
    "gemini with a closed connection": ("gemini", [gemini_chunk({"text": "Hel"})], True),
    "gemini with nothing": ("gemini", (), False),
    "gemini with a call that it cannot read": ("gemini", [gemini_chunk(finish="MALFORMED_FUNCTION_CALL")], False),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_reply_without_its_end_is_a_failure_to_repeat(case: str) -> None:
    provider, chunks, cut = BROKEN[case]
    error = await failed(provider, Scripted(chunks, headers=HEADERS[provider], cut=cut))
    assert (error.kind, error.retryable) == ("BadStream", True)


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_an_error_inside_a_reply_has_its_kind(provider: str) -> None:
    slow = aws_event("throttlingException", {"message": "slow down"}, "exception")
    answer = Scripted([*WHOLE[:2], slow], headers=BEDROCK_HEADERS)
    if provider == "gemini":
        error = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}
        answer = gemini(gemini_chunk({"text": "x"}), f"data: {json.dumps(error)}\r\n\r\n".encode())
    raised = await failed(provider, answer)
    assert (raised.kind, raised.retryable) == ("RateLimited", True)


def silent(provider: str, when: str) -> Scripted:
    """Return an answer that becomes silent before or after its first text."""
    start = WHOLE[:3] if provider == "bedrock" else [gemini_chunk({"text": "Hel"})]
    return Scripted(start, headers=HEADERS[provider], silent_before=when == "before", silent_after=True)


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_silence_is_cut_off(provider: str, when: str) -> None:
    began = time.monotonic()
    error = await failed(provider, silent(provider, when), settings=ModelSettings(silence_s=1))
    assert (error.kind, error.retryable) == ("Timeout", True)
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancellation_closes_the_connection_at_once(provider: str, when: str) -> None:
    async with cloud_server(silent(provider, when)) as served, asked(provider, served) as found:
        streaming = asyncio.Event()
        request = a_request(model=MODELS[provider])
        call = asyncio.create_task(found.complete(request, lambda text: streaming.set()))
        await asyncio.wait_for((streaming if when == "after" else served.waits).wait(), 30)
        cancelled_at = time.monotonic()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.monotonic() - cancelled_at < 0.5
        assert await asyncio.wait_for(served.closed_at, 5) - cancelled_at < 0.5


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_many_calls_that_wait_do_not_hold_up_another(provider: str) -> None:
    waiting = 60
    answers = [*[Scripted(silent_before=True)] * waiting, greeting(provider)]
    async with asyncio.timeout(60), cloud_server(*answers) as served, asked(provider, served) as found:
        request = a_request(model=MODELS[provider])
        calls = [asyncio.create_task(found.complete(request, lambda text: None)) for _ in range(waiting)]
        while len(served.bodies) < waiting:
            await asyncio.sleep(0.02)
        assert (await found.complete(request, lambda text: None)).text == "Hello"
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in ended} == {asyncio.CancelledError}


@pytest.mark.parametrize("provider", ["bedrock", "gemini"])
async def test_an_unreachable_server_is_a_failure_to_repeat(provider: str) -> None:
    async with cloud_server() as served:
        pass
    async with asked(provider, served) as found:
        with pytest.raises(ModelError, match="can't be reached") as raised:
            await found.complete(a_request(model=MODELS[provider]), lambda text: None)
    assert (raised.value.kind, raised.value.retryable) == ("ConnectionFailed", True)


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize(("status", "reason"), [(404, ""), (403, ""), (503, "answered 503")])
async def test_a_check_shows_if_the_server_answers(provider: str, status: int, reason: str) -> None:
    served, registry, _ = SHARED[0]
    served.begin([Scripted(status=status)])
    found = await registry.unreachable_reason(f"{provider}:{MODELS[provider]}")
    assert reason in found
    assert bool(found) == bool(reason)


async def test_a_reply_that_never_ends_is_cut() -> None:
    big = [gemini_chunk({"text": "x" * 200_000}) for _ in range(8)]
    reply, _, _ = await replied("gemini", gemini(*big, gemini_chunk(finish="STOP")))
    assert reply.finish == "length"
    assert len(reply.text) <= 1_000_000


# Without the extra, and before it is needed


@pytest.mark.parametrize("package", ["pydantic_ai", "boto3"])
@pytest.mark.parametrize("provider", ["bedrock", "gemini", "vertex"])
def test_without_the_extra_the_models_are_refused_before_a_run_starts(
    provider: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{provider}:{MODELS[provider]}"
    assert not model_problem(name, ENVIRONMENT, ModelsConfig())
    monkeypatch.setitem(sys.modules, package, None)
    problem = model_problem(name, ENVIRONMENT, ModelsConfig())
    assert problem.startswith(f"{provider} needs orga[providers], which is not installed here: pip install '")
    with pytest.raises(ModelNotConfigured, match=r"needs orga\[providers\]"):
        ModelRegistry(ENVIRONMENT).resolve(name)


@pytest.mark.parametrize("module", ["google.genai.errors", "boto3", "pydantic_ai.models.google"])
async def test_an_incomplete_extra_is_a_final_failure_with_its_remedy(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModelRegistry(ENVIRONMENT)
    found, name = registry.resolve(f"bedrock:{CLAUDE}")
    for loaded in [each for each in sys.modules if each.startswith("orga.activities.adapters.models.extra.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError, match=r"bedrock can't be asked: orga\[providers\] is not .*: pip install") as raised:
        await found.complete(a_request(model=name), lambda text: None)
    await registry.close()
    assert not raised.value.retryable


def test_the_list_of_models_shows_that_the_extra_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    assert run_command(["models"]) == 0
    listed = capsys.readouterr().out
    for provider in MODELS:
        assert re.search(rf"- {provider}:NAME +{provider} needs orga\[providers\]", listed)


def test_the_library_is_not_imported_before_a_model_is_asked() -> None:
    code = (
        "import sys; from orga.activities.adapters.models.registry import ModelRegistry\n"
        f"registry = ModelRegistry({ENVIRONMENT!r})\n"
        "for name in ('bedrock:m', 'gemini:m', 'vertex:m'): registry.resolve(name)\n"
        "print({'pydantic_ai', 'boto3', 'botocore', 'google.genai', 'httpx2'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_fields_that_gemini_has_no_place_for_are_refused() -> None:
    registry = ModelRegistry(ENVIRONMENT, endpoints={"gemini": EndpointSettings(extra_body={"x": 1})})
    with pytest.raises(ModelNotConfigured, match="has extra_body"):
        registry.resolve(f"gemini:{GEMINI}")


async def test_the_price_list_knows_prices_and_windows() -> None:
    registry = ModelRegistry(ENVIRONMENT)
    assert registry.is_priced(f"bedrock:{CLAUDE}")
    assert registry.is_priced("vertex:gemini-2.5-flash")
    assert not registry.is_priced("bedrock:somebody.unknown-v1:0")
    assert await registry.context_window("gemini:gemini-2.5-flash") == 1_048_576
    assert await registry.context_window("bedrock:us.amazon.nova-pro-v1:0") == 300_000
