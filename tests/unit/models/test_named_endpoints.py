"""Endpoints of the configuration: each example of the guide is asked at its address, with its key and its protocol."""

import asyncio
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orga.activities.adapters import http
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry
from orga.activities.circuits import GuardedModels, WorkerBreakers
from orga.activities.ports import ModelError
from orga.client.config.known_input import RequestedNames, model_problem, refuse_unknown
from orga.client.config.listed import model_price, model_rows
from orga.client.config.run_time import RunTimeRules
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.errors import ConfigError
from orga.client.workers.checked import worker_report
from orga.client.workers.in_code import Agent, InCodeParts
from orga.client.workers.knowledge_store import configured_embedder
from orga.client.workers.parts import secret_names
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.providers import PROVIDERS, Api
from orga.workflows.types.models.usage import ModelPrice
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    stream_response,
    text_response,
)
from tests.support.model.sdk_types import assert_anthropic_takes, assert_openai_takes, assert_responses_takes
from tests.support.runs.circuits import OPTIONS, clock, shared
from tests.support.values.core import a_setup

__all__ = ["clock", "shared"]

GUIDE = Path(__file__).parents[3] / "docs" / "models.md"
KEY = "k-1234567890"
TOOLS = (ToolSpec(name="now"),)


def guide_config() -> OrgaConfig:
    """Return all endpoints of the guide as one configuration."""
    endpoints: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    for block in re.findall(r"^```toml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        models = tomllib.loads(block).get("models", {})
        endpoints |= models.get("endpoints", {})
        prices |= models.get("prices", {})
    endpoints.pop("openrouter")
    return OrgaConfig.model_validate({"models": {"endpoints": endpoints, "prices": prices}}, extra="forbid")


def environment(config: OrgaConfig) -> dict[str, str]:
    return dict.fromkeys((name for each in config.models.endpoints.values() for name in each.secret_variables), KEY)


def registry(
    models: ModelsConfig, env: dict[str, str], network: Callable[[http.Request], http.Response] | None = None
) -> ModelRegistry:
    transport = http.MockTransport(network) if network else None
    return ModelRegistry(env, models.base_urls, transport, prices=models.prices, endpoints=models.endpoints)


def own(**settings: Any) -> ModelsConfig:
    """Return a configuration with the endpoint `house`."""
    return ModelsConfig.model_validate(
        {"endpoints": {"house": {"api": "chat", "base_url": "http://house.test/v1"} | settings}}, extra="forbid"
    )


def greeting(api: str) -> http.Response:
    if api != "chat":
        return text_response(api)
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 100_000, "cost": 0.5}
    return stream_response(chunk("stop", content="hi"), {"choices": [], "usage": usage}, "[DONE]")


BEARER = {"authorization": f"Bearer {KEY}", "x-api-key": None, "api-key": None}
NO_KEY = dict.fromkeys(BEARER)

EXAMPLES: dict[str, tuple[str, str, dict[str, str | None], dict[str, Any]]] = {
    "azure:my-deployment": (
        "responses",
        "https://my-resource.openai.azure.com/openai/v1/responses?api-version=preview",
        {"api-key": KEY, "authorization": None},
        {},
    ),
    "bedrock-chat:openai.gpt-oss-120b-1:0": (
        "chat",
        "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1/chat/completions",
        BEARER,
        {},
    ),
    "bedrock-claude:anthropic.claude-sonnet-5": (
        "messages",
        "https://bedrock-runtime.us-west-2.amazonaws.com/anthropic/v1/messages",
        BEARER | {"anthropic-version": "2026-10-21"},
        {},
    ),
    "vertex-chat:google/gemini-2.5-pro": (
        "chat",
        "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1/endpoints/openapi"
        "/chat/completions",
        BEARER,
        {"extra_body": {"google": {"thinking_config": {"thinking_budget": 900}}}},
    ),
    "vllm:Qwen/Qwen3-32B": (
        "chat",
        "http://gpu-1.internal:8000/v1/chat/completions",
        NO_KEY,
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "litellm:team-sonnet": (
        "chat",
        "http://litellm.internal:4000/v1/chat/completions",
        BEARER | {"x-litellm-tags": "orga"},
        {},
    ),
    "openrouter-eu:a/b": (
        "chat",
        "https://eu.openrouter.ai/api/v1/chat/completions",
        BEARER,
        {"provider": {"data_collection": "deny"}, "reasoning": {"max_tokens": 900}},
    ),
    "gpu-box:qwen3:8b": ("chat", "http://gpu-box:11434/v1/chat/completions", NO_KEY, {"tool_choice": None}),
}
"""Protocol, address, headers and fields of the request to a model, by its name."""

TAKES = {"chat": assert_openai_takes, "responses": assert_responses_takes, "messages": assert_anthropic_takes}
"""Checks of a body against the types of the protocol's own SDK."""

OTHER_FIELDS = {"extra_body", "chat_template_kwargs", "provider", "reasoning"}
"""Fields that these servers add to Chat Completions."""


@pytest.mark.parametrize("name", EXAMPLES)
async def test_each_example_of_the_guide_is_asked_as_its_server_expects(name: str) -> None:
    api, url, headers, fields = EXAMPLES[name]
    config = guide_config()
    network = Network([greeting(api)])

    def answer(sent: http.Request) -> http.Response:
        return http.Response(200, json={}) if sent.url.path in {"/api/ps", "/api/show"} else network(sent)

    known = registry(config.models, environment(config), answer)
    asked, model = known.resolve(name)
    request = a_request(model=model, tools=TOOLS, tool_choice="any", settings=ModelSettings(thinking_tokens=900))
    reply = await asked.complete(request, lambda text: None)
    await known.close()
    body, sent = network.body(), network.requests[0]
    assert (reply.text, str(sent.url)) == ("hi", url)
    assert body["model"] == model == name.partition(":")[2]
    assert {header: sent.headers.get(header) for header in headers} == headers
    assert {field: body.get(field) for field in fields} == fields
    kept = OTHER_FIELDS if api == "chat" else set[str]()
    TAKES[api]({field: value for field, value in body.items() if field not in kept})


def test_the_guide_has_an_example_for_each_server() -> None:
    assert {name.partition(":")[0] for name in EXAMPLES} == set(guide_config().models.endpoints)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", ["openai", "openrouter", "anthropic", "openai-compatible", "ollama"])
async def test_each_provider_can_be_asked_by_each_protocol(name: str, api: Api) -> None:
    """A gateway is often reached by a provider's own variables, and has another protocol."""
    entry = PROVIDERS[name]
    env = {entry.key: KEY, entry.base_url: "http://gateway.test/v1"}
    models = ModelsConfig.model_validate({"endpoints": {name: {"api": api, "key_scheme": "bearer"}}}, extra="forbid")
    network = Network([greeting(api)])

    def server(request: http.Request) -> http.Response:
        return http.Response(404) if request.url.path.startswith("/api/") else network(request)  # Ollama's native API

    asked, model = registry(models, env, server).resolve(f"{name}:m")
    assert (await asked.complete(a_request(model=model), lambda text: None)).text == "hi"
    [sent] = network.requests
    path = {"chat": "/chat/completions"}.get(api, f"/{api}")
    assert str(sent.url) == f"http://gateway.test/v1{path}"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert ("anthropic-version" in sent.headers) is (api == "messages")
    TAKES[api](json.loads(sent.content))


async def test_a_query_reaches_the_server_after_the_path() -> None:
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
        data = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + data)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as running:
        port = running.sockets[0].getsockname()[1]
        known = registry(own(base_url=f"http://127.0.0.1:{port}/deployments/d/?api-version=1&x=%2F"), {})
        asked, model = known.resolve("house:m")
        assert (await asked.complete(a_request(model=model), lambda text: None)).text == "hi"
        assert await known.unreachable_reason("house:m") == ""
        await known.close()
    assert lines == [
        "POST /deployments/d/chat/completions?api-version=1&x=%2F HTTP/1.1",
        "GET /deployments/d/models?api-version=1&x=%2F HTTP/1.1",
    ]


async def test_a_provider_keeps_the_query_of_its_address_too() -> None:
    network = Network([greeting("chat")])
    known = ModelRegistry({}, {"openai-compatible": "http://h/v1/?a=b"}, http.MockTransport(network))
    asked, model = known.resolve("openai-compatible:m")
    await asked.complete(a_request(model=model), lambda text: None)
    assert str(network.requests[0].url) == "http://h/v1/chat/completions?a=b"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"house": {}}, "an endpoint of your own needs api and base_url"),
        ({"opnai": {}}, "'opnai' is no provider with a server; did you mean 'openai'?"),
        ({"house": {"api": "chat"}}, "house: an endpoint of your own needs base_url, too"),
        ({"house": {"base_url": "http://h/v1"}}, "house: an endpoint of your own needs api, too"),
        ({"bedrock": {"api": "chat"}}, "bedrock is a provider, so it has no api; use base_urls, or another name"),
        ({"openai": {"base_url": "http://h/v1"}}, "openai is a provider, so it has no base_url; use base_urls"),
        ({"openrouter": {"key_from": "K", "api": "chat"}}, "so it has no key_from"),
        ({"offline": {"api": "chat", "base_url": "http://h"}}, "offline: cannot be the name of an endpoint"),
        ({"code": {"api": "chat", "base_url": "http://h"}}, "code: cannot be the name of an endpoint"),
        ({"tier": {"api": "chat", "base_url": "http://h"}}, "tier: cannot be the name of an endpoint"),
        ({"My House": {"api": "chat", "base_url": "http://h"}}, "My House: cannot be the name of an endpoint"),
        ({"house": {"api": "chat", "base_url": "house:8000"}}, "is no http(s) address"),
        ({"house": {"api": "chat", "base_url": "http://h:99999/v1"}}, "is no http(s) address"),
        ({"house": {"api": "chat", "base_url": "http://h/v1#there"}}, "is no http(s) address"),
        ({"house": {"api": "chat", "base_url": "http://me:secret@h/v1"}}, "holds a user or a password"),
        ({"house": {"api": "grpc", "base_url": "http://h/v1"}}, "Input should be 'chat', 'responses' or 'messages'"),
    ],
)
def test_a_mistake_in_an_endpoint_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelsConfig.model_validate({"endpoints": given})
    assert says in str(caught.value)


def test_an_address_of_an_unknown_provider_names_the_place_for_it() -> None:
    with pytest.raises(ValidationError, match=r"a server of your own has its address in \[models.endpoints.NAME\]"):
        ModelsConfig.model_validate({"base_urls": {"house": "http://h/v1"}})


UNKNOWN = "'nohouse:m' names no model: did you mean 'house'? write provider:model, with provider one of openrouter, "


def test_an_unknown_endpoint_is_refused_wherever_the_configuration_is_known() -> None:
    config = OrgaConfig(models=own())
    refuse_unknown(RequestedNames("default", "house:m"), config)
    with pytest.raises(InvalidInput, match=re.escape(UNKNOWN)) as caught:
        refuse_unknown(RequestedNames("default", "nohouse:m"), config)
    assert str(caught.value).endswith("local, offline, code, or an endpoint: house")
    with pytest.raises(ModelNotConfigured, match=re.escape(UNKNOWN)):
        registry(config.models, {}).check("nohouse:m")
    assert UNKNOWN in model_problem("nohouse:m", {}, config.models)
    with pytest.raises(ValidationError, match=re.escape(f"tiers.heavy.1: {UNKNOWN}")):
        ModelsConfig.model_validate(dict(own()) | {"tiers": {"heavy": ["house:m", "nohouse:m"]}})
    with pytest.raises(ConfigError, match=re.escape(UNKNOWN)):
        InCodeParts([Agent("a", model="nohouse:m")]).merged_with(config)
    assert InCodeParts([Agent("a", model="house:m")]).merged_with(config).agents["a"].model == "house:m"


async def test_the_worker_refuses_an_unknown_endpoint_before_the_first_step() -> None:
    known = registry(own(), {})
    agents = ConfiguredAgents({}, {}, "house:m", known.check, a_setup())
    with pytest.raises(InvalidInput, match=re.escape(f"model: {UNKNOWN}")):
        await agents.setup(PrepareRequest(model="nohouse:m", tools=()))


def test_settings_at_run_time_can_name_an_endpoint_but_not_bring_one() -> None:
    rules = RunTimeRules.for_display(OrgaConfig(models=own()), {})
    assert rules.problems({"models.default": "house:m", "models.tiers.heavy": ["house:m"]}) == ()
    for values in ({"models.default": "nohouse:m"}, {"models.tiers.heavy": ["nohouse:m"]}):
        problem = rules.problems(values)[0]
        assert (problem.where, UNKNOWN in problem.detail) == (*values, True)
    (problem,) = rules.problems({"models.endpoints.house.base_url": "http://other/v1"})
    assert "cannot be set at run time" in problem.detail


def test_a_key_that_is_named_must_be_set_and_is_a_secret() -> None:
    models = own(key_from="HOUSE_PASS")
    assert "HOUSE_PASS" in secret_names(OrgaConfig(models=models))
    for env in ({}, {"HOUSE_PASS": " "}):
        with pytest.raises(ModelNotConfigured, match="house has no key: set HOUSE_PASS, or choose another model"):
            registry(models, env).check("house:m")
    registry(models, {"HOUSE_PASS": KEY}).check("house:m")


async def test_an_error_of_the_server_names_the_endpoint_and_hides_its_key() -> None:
    network = Network([http.Response(400, json={"error": {"message": f"bad key {KEY}"}})])
    asked, model = registry(own(key_from="HOUSE_PASS"), {"HOUSE_PASS": KEY}, network).resolve("house:m")
    with pytest.raises(ModelError, match=r"^house answered 400") as caught:
        await asked.complete(a_request(model=model), lambda text: None)
    assert KEY not in str(caught.value)


async def cost_of(models: ModelsConfig, name: str) -> float | None:
    asked, model = registry(models, {"K": KEY}, Network([greeting("chat")])).resolve(name)
    return (await asked.complete(a_request(model=model), lambda text: None)).cost_usd


PRICE = {"input": 2, "output": 10}


@pytest.mark.parametrize(
    ("settings", "prices", "model", "expected"),
    [
        pytest.param({"price": PRICE}, {}, "m", 3.0, id="the price of the endpoint"),
        pytest.param(
            {"price": PRICE}, {"house:m": {"input": 1, "output": 0}}, "m", 1.0, id="a price of the model wins"
        ),
        pytest.param({"price": {"input": 0, "output": 0}}, {}, "m", 0.0, id="free"),
        pytest.param({}, {}, "gpt-4o", None, id="a known name says nothing about the price"),
        pytest.param({"base_url": "https://eu.openrouter.ai/api/v1"}, {}, "m", 0.5, id="the bill of OpenRouter"),
        pytest.param({"base_url": "https://eu.api.openai.com/v1"}, {}, "gpt-4o", 3.5, id="the list price of OpenAI"),
        pytest.param({"base_url": "https://notopenrouter.ai/v1"}, {}, "m", None, id="another host"),
    ],
)
async def test_a_dollar_limit_needs_a_price_and_the_cost_follows_it(
    settings: dict[str, Any], prices: dict[str, Any], model: str, expected: float | None
) -> None:
    models = ModelsConfig.model_validate(dict(own(**settings)) | {"prices": prices})
    name = f"house:{model}"
    assert await cost_of(models, name) == (expected if expected is None else pytest.approx(expected))
    known = registry(models, {})
    agents = ConfiguredAgents({}, {}, name, known.check, a_setup(), is_priced=known.is_priced)
    request = PrepareRequest(tools=(), config={"max_cost_usd": 1.0})
    if expected is not None:
        assert (await agents.setup(request)).model == name
    else:
        with pytest.raises(InvalidInput, match=f"the price of {name} is not known"):
            await agents.setup(request)


def test_models_are_listed_with_their_problems_and_prices() -> None:
    config = OrgaConfig(models=own(key_from="HOUSE_PASS", price=PRICE), agents={"a": AgentConfig(model="house:m")})
    rows = {row.model: row.problem for row in model_rows(config, {})}
    assert "set HOUSE_PASS" in rows["house:m"]
    assert "house:NAME" in rows
    assert model_price("house:m", config) == ModelPrice(input=2, output=10)
    assert model_price("house:m", OrgaConfig(models=own())) is None


def test_the_doctor_asks_an_endpoint_and_reports_a_missing_key(tmp_path: Path) -> None:
    agents = {"default": AgentConfig(model="house:m", tools=()), "b": AgentConfig(model="nohouse:m", tools=())}
    config = OrgaConfig(models=own(key_from="HOUSE_PASS", base_url="http://127.0.0.1:9/v1"), agents=agents)
    report = worker_report(config, tmp_path, {})
    found = {each["place"]: each["problem"] for each in report["problems"]}
    assert "set HOUSE_PASS" in found["agents.default.model"]
    assert UNKNOWN in found["agents.b.model"]
    report = worker_report(config, tmp_path, {"HOUSE_PASS": KEY})
    assert report["models"]["house:m"].startswith("house can't be reached at http://127.0.0.1:9/v1")


async def test_each_endpoint_has_a_circuit_of_its_own(shared: WorkerBreakers) -> None:
    place = {"api": "chat", "base_url": "http://house.test/v1"}
    models = ModelsConfig.model_validate({"endpoints": {"house": place, "other": place}})
    down = http.Response(500, json={"error": {"message": "down"}})
    network = Network([down, down, down, greeting("chat")])
    guarded = GuardedModels(registry(models, {}, network), shared, OPTIONS)
    asked, model = guarded.resolve("house:m")
    for _ in range(3):
        with pytest.raises(ModelError, match="house answered 500"):
            await asked.complete(a_request(model=model), lambda text: None)
    assert (shared.circuit("provider:house").state, shared.circuit("provider:other").state) == ("open", "closed")
    with pytest.raises(ModelError, match="provider:house is left alone"):
        await asked.complete(a_request(model=model), lambda text: None)
    asked, model = guarded.resolve("other:m")
    assert (await asked.complete(a_request(model=model), lambda text: None)).text == "hi"


@pytest.mark.parametrize(
    ("settings", "listed", "window", "budget"),
    [
        pytest.param({"context_window": 8_000}, {}, 8_000, 6_000, id="the endpoint's"),
        pytest.param({"context_window": 8_000}, {"max_model_len": 4_000}, 8_000, 6_000, id="the endpoint's wins"),
        pytest.param({}, {"max_model_len": 4_000}, 4_000, 3_000, id="the server's"),
        pytest.param({}, {}, None, 32_000, id="unknown"),
    ],
)
async def test_a_conversation_fits_the_window_of_the_endpoint(
    settings: dict[str, Any], listed: dict[str, Any], window: int | None, budget: int
) -> None:
    network = Network([http.Response(200, json={"data": [{"id": "m"} | listed]})])
    known = registry(own(base_url="http://house.test/v1?a=b", **settings), {}, network)
    assert await known.context_window("house:m") == window
    assert {str(each.url) for each in network.requests} <= {"http://house.test/v1/models?a=b"}
    agents = ConfiguredAgents({}, {}, "house:m", known.check, a_setup(), context_window=known.context_window)
    assert (await agents.setup(PrepareRequest(tools=()))).config.context_token_budget == budget


async def test_the_window_of_an_endpoint_nobody_knows_is_unknown() -> None:
    assert await registry(own(), {}, Network([])).context_window("nohouse:m") is None


async def test_a_second_ollama_is_asked_for_its_context() -> None:
    def answer(request: http.Request) -> http.Response:
        loaded = {"models": [{"name": "qwen3:8b", "context_length": 4_096}]}
        return http.Response(200, json=loaded if request.url.path == "/api/ps" else {})

    known = registry(own(base_url="http://gpu-box:11434/v1"), {}, answer)
    assert await known.context_window("house:qwen3:8b") == 4_096
    assert "OLLAMA_CONTEXT_LENGTH" in await known.context_shortage("house:qwen3:8b")


async def test_a_reply_fits_the_rest_of_the_window() -> None:
    network = Network([greeting("chat")])
    asked, model = registry(own(context_window=8_000), {}, network).resolve("house:m")
    await asked.complete(a_request(model=model, max_output_tokens=16_384), lambda text: None)
    assert 7_000 < network.body()["max_tokens"] < 8_000


async def test_calls_of_models_without_tools_are_read_from_their_text() -> None:
    written = '{"action": "call_tool", "tool": "now", "arguments": {}}'
    network = Network([stream_response(chunk("stop", content=written), "[DONE]")])
    asked, model = registry(own(lacks=["tools"]), {}, network).resolve("house:m")
    reply = await asked.complete(a_request(model=model, tools=TOOLS), lambda text: None)
    assert [call.name for call in reply.calls] == ["now"]
    assert "tools" not in network.body()
    assert len(network.requests) == 1


@pytest.mark.parametrize(
    ("lack", "request_fields", "absent"),
    [
        ("effort", {"settings": ModelSettings(effort="high")}, "reasoning_effort"),
        ("stream_options", {}, "stream_options"),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ("response_format", {"output_schema": {"type": "object", "properties": {}}}, "response_format"),
    ],
)
async def test_what_an_endpoint_lacks_is_never_sent(lack: str, request_fields: dict[str, Any], absent: str) -> None:
    for lacks, is_sent in (((), True), ((lack,), False)):
        network = Network([greeting("chat")])
        asked, model = registry(own(lacks=lacks), {}, network).resolve("house:m")
        await asked.complete(a_request(model=model, **request_fields), lambda text: None)
        assert (absent in network.body()) is is_sent


async def test_a_model_without_a_system_role_gets_its_instructions_from_the_user() -> None:
    network = Network([greeting("chat")])
    asked, model = registry(own(lacks=["system_role"]), {}, network).resolve("house:m")
    await asked.complete(a_request(model=model, system=("be short",)), lambda text: None)
    assert [each["role"] for each in network.body()["messages"]] == ["user"]


def test_an_endpoint_can_embed_texts() -> None:
    config = OrgaConfig.model_validate({"models": dict(own()), "knowledge": {"embedder": "house:nomic"}})
    assert configured_embedder(config.knowledge.embedder, {}, config.models).name == "house:nomic"
    for models in (ModelsConfig(), own(api="messages")):
        with pytest.raises(ValidationError, match="'house:nomic' names no embedder"):
            OrgaConfig.model_validate({"models": dict(models), "knowledge": {"embedder": "house:nomic"}})
