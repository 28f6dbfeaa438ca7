"""The budget of a conversation follows the context of its model, and a request that Ollama would cut is not sent."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.agents.agents import ConfiguredAgents, default_context_budget
from orga.activities.adapters.models.ollama import OllamaContext, OllamaProvider
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Message
from orga.workflows.types.models.tiers import ModelTiers
from orga.workflows.types.setup import PrepareRequest, Setup
from tests.support.model.providers import Network, a_request, chunk, stream_response


@dataclass
class Ollama:
    """A scripted Ollama: a function for `http.MockTransport`. It loads its model with the first request."""

    context: int = 4_096
    """The context that the server gives a model whose Modelfile sets none."""
    parameters: str = ""
    loaded: bool = False
    remote_host: str = ""
    counted: int = 0
    """The tokens that it counts of a request. 0 counts none."""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The bodies of the model calls."""

    def __call__(self, request: http.Request) -> http.Response:
        match request.url.path:
            case "/api/ps":
                running = [{"name": "qwen3:latest", "model": "qwen3:latest", "context_length": self.context}]
                return http.Response(200, json={"models": running if self.loaded else []})
            case "/api/show":
                assert json.loads(request.content) == {"model": "qwen3"}
                shown = {"parameters": self.parameters, "model_info": {"qwen3.context_length": 40_960}}
                return http.Response(200, json=shown | ({"remote_host": self.remote_host} if self.remote_host else {}))
            case "/v1/chat/completions":
                self.loaded = True
                self.asked.append(json.loads(request.content))
                usage = {"prompt_tokens": self.counted, "completion_tokens": 1} if self.counted else None
                return stream_response({**chunk("stop", content="hi"), "usage": usage}, "[DONE]")
            case path:
                return http.Response(404, text=path)

    @property
    def registry(self) -> ModelRegistry:
        return ModelRegistry({}, transport=http.MockTransport(self))


def a_long_request(tokens: int, **fields: Any) -> ModelRequest:
    """Return a request of about so many tokens, by the loop's estimate."""
    return a_request(model="qwen3", messages=(Message.of("user", "x" * int(tokens * 3.3)),), **fields)


async def complete(registry: ModelRegistry, request: ModelRequest) -> str:
    provider, _ = registry.resolve("ollama:qwen3")
    return (await provider.complete(request, lambda text: None)).text


async def test_a_request_that_fits_gets_an_output_limit_that_fits() -> None:
    server = Ollama(loaded=True)
    assert await complete(server.registry, a_long_request(2_000, max_output_tokens=16_384)) == "hi"
    assert 1_500 < server.asked[0]["max_tokens"] < 2_096


async def test_a_request_that_ollama_would_cut_is_not_sent() -> None:
    server = Ollama(loaded=True)
    with pytest.raises(ModelError, match="would cut them silently") as caught:
        await complete(server.registry, a_long_request(4_000))
    assert (caught.value.kind, caught.value.retryable) == ("ContextOverflow", False)
    assert "start Ollama with OLLAMA_CONTEXT_LENGTH=40960" in str(caught.value)
    assert server.asked == []


async def test_the_reply_to_a_request_that_was_cut_while_the_model_was_loaded_is_refused() -> None:
    server = Ollama()
    registry = server.registry
    with pytest.raises(ModelError, match="would cut them silently"):
        await complete(registry, a_long_request(4_000))
    assert len(server.asked) == 1
    with pytest.raises(ModelError, match="would cut them silently"):
        await complete(registry, a_long_request(4_000))
    assert len(server.asked) == 1


async def test_the_counted_tokens_decide_what_fits() -> None:
    """A text of the model's language may have fewer tokens than the estimate."""
    server = Ollama(loaded=True, counted=1_600)
    registry = server.registry
    await complete(registry, a_long_request(2_000))
    assert await complete(registry, a_long_request(3_800)) == "hi"


@pytest.mark.parametrize(
    ("server", "window"),
    [
        pytest.param(Ollama(), None, id="a model that is not loaded"),
        pytest.param(Ollama(loaded=True), 4_096, id="a loaded model"),
        pytest.param(Ollama(parameters="stop \"a\"\nnum_ctx                        8192\n"), 8_192, id="a Modelfile"),
        pytest.param(Ollama(remote_host="https://ollama.com:443"), 40_960, id="a cloud model"),
    ],
)  # fmt: skip
async def test_ollama_states_the_context_that_requests_get(server: Ollama, window: int | None) -> None:
    assert await server.registry.context_window("ollama:qwen3") == window


@pytest.mark.parametrize(
    ("context", "shortage"),
    [
        pytest.param(OllamaContext(None, 40_960), "", id="unknown"),
        pytest.param(OllamaContext(32_768, 40_960), "", id="most of it"),
        pytest.param(OllamaContext(4_096, 4_096), "", id="all of a small model"),
        pytest.param(
            OllamaContext(4_096, 262_144),
            "Ollama serves the model with a context of 4,096 tokens of its 262,144. For more, start Ollama with "
            "OLLAMA_CONTEXT_LENGTH=65536, or set PARAMETER num_ctx 65536 in its Modelfile",
            id="the default",
        ),
        pytest.param(
            OllamaContext(8_192, None, is_of_modelfile=True),
            "Ollama serves the model with a context of 8,192 tokens. For more, set PARAMETER num_ctx 65536 in its "
            "Modelfile",
            id="a Modelfile, which wins over the variable",
        ),
    ],
)
def test_too_little_context_has_its_remedy(context: OllamaContext, shortage: str) -> None:
    assert context.shortage == shortage


async def test_too_little_context_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = Ollama(loaded=True).registry
    for _ in range(2):
        await complete(registry, a_long_request(100))
        provider, _ = registry.resolve("ollama:qwen3")
        assert isinstance(provider, OllamaProvider)
        await provider.context("qwen3", again=True)
    assert [record.getMessage()[:13] for record in caplog.records] == ["ollama:qwen3:"]
    assert "start Ollama" in await registry.context_shortage("ollama:qwen3")


@pytest.mark.parametrize("status", [404, 501])
async def test_a_server_without_the_native_interface_is_asked_as_before(status: int) -> None:
    def server(request: http.Request) -> http.Response:
        paths.append(request.url.path)
        return stream_response(chunk("stop", content="hi"), "[DONE]") if "/v1/" in paths[-1] else http.Response(status)

    paths: list[str] = []
    registry = ModelRegistry({}, transport=http.MockTransport(server))
    for _ in range(2):
        assert await complete(registry, a_long_request(9_000)) == "hi"
    assert paths == ["/api/ps", "/v1/chat/completions", "/v1/chat/completions"]
    assert await registry.context_shortage("ollama:qwen3") == ""


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"max_model_len": 8_192}, id="vLLM"),
        pytest.param({"context_length": 8_192}, id="OpenRouter and its like"),
        pytest.param({"meta": {"n_ctx": 8_192, "n_ctx_train": 40_960}}, id="llama.cpp"),
    ],
)
async def test_a_compatible_server_may_list_its_windows(entry: dict[str, Any]) -> None:
    network = Network([http.Response(200, json={"data": [{"id": "other"}, {"id": "m"} | entry]})])
    env = {"OPENAI_COMPATIBLE_BASE_URL": "http://gw/v1"}
    registry = ModelRegistry(env, transport=http.MockTransport(network))
    assert [await registry.context_window("openai-compatible:m") for _ in range(2)] == [8_192, 8_192]
    assert await registry.context_window("openai-compatible:absent") is None
    assert [request.url.path for request in network.requests] == ["/v1/models", "/v1/models"]


@pytest.mark.parametrize(
    "answer",
    [
        http.Response(200, text="<html>"),
        http.Response(200, json=[]),
        http.Response(200, json={"data": [{"id": "m", "max_model_len": "many"}]}),
        http.Response(500),
        http.ConnectError("refused"),
    ],
)
async def test_a_server_that_states_nothing_leaves_the_window_unknown(answer: http.Response | Exception) -> None:
    env = {"OPENAI_COMPATIBLE_BASE_URL": "http://gw/v1"}
    registry = ModelRegistry(env, transport=http.MockTransport(Network([answer])))
    assert await registry.context_window("openai-compatible:m") is None


async def test_the_window_of_a_listed_model_is_known_without_a_request() -> None:
    network = Network([http.Response(500)])
    registry = ModelRegistry({"OPENAI_API_KEY": "a-key-of-some-length"}, transport=http.MockTransport(network))
    assert await registry.context_window("openai:gpt-4o") == 128_000
    assert await registry.context_window("openai:of-tomorrow") is None
    assert [await registry.context_window(name) for name in ("offline:extractive", "code:mine", "none")] == [None] * 3
    assert network.requests == []


@pytest.mark.parametrize(
    ("limits", "window", "budget"),
    [
        pytest.param({}, 1_000_000, 32_000, id="the run's tokens bound a large window"),
        pytest.param({"max_total_tokens": 1_000_000}, 1_000_000, 250_000, id="a large run uses a large window"),
        pytest.param({"max_total_tokens": 1_000_000}, 128_000, 111_616, id="as far as the window has room"),
        pytest.param({}, 32_768, 24_576, id="a small window keeps a quarter for the reply"),
        pytest.param({"max_output_tokens": 2_000}, 32_768, 30_768, id="or the limit of the reply"),
        pytest.param({}, 4_096, 3_072, id="the default of Ollama"),
        pytest.param({}, 512, 500, id="never less than the key accepts"),
    ],
)
def test_the_default_budget_follows_the_window(limits: dict[str, Any], window: int, budget: int) -> None:
    assert default_context_budget(LoopConfig(**limits), window) == budget


WINDOWS = {"ollama:small": 8_192, "ollama:large": 65_536}


async def budget_of_run(agent: AgentConfig, *, is_goal: bool = False, **config: Any) -> int:
    async def window(model: str) -> int | None:
        return WINDOWS.get(model)

    agents = ConfiguredAgents(
        {"default": agent},
        {},
        "ollama:large",
        lambda name: None,
        Setup(agent="", model=""),
        tiers=ModelTiers(light=("ollama:large", "ollama:unknown"), heavy=("ollama:large", "ollama:small")),
        context_window=window,
    )
    setup = await agents.setup(PrepareRequest(config=config, tools=()), is_goal=is_goal)
    return setup.config.context_token_budget


async def test_a_budget_that_somebody_set_stays() -> None:
    small = AgentConfig(model="ollama:small")
    assert await budget_of_run(small) == 6_144
    assert await budget_of_run(small, context_token_budget=32_000) == 32_000
    limits = LoopConfig(context_token_budget=32_000)
    assert await budget_of_run(AgentConfig(model="ollama:small", config=limits)) == 32_000


async def test_the_smallest_window_of_a_tier_counts() -> None:
    assert await budget_of_run(AgentConfig(model="tier:light")) == 32_000
    assert await budget_of_run(AgentConfig(model="tier:heavy")) == 6_144
    assert await budget_of_run(AgentConfig(model="ollama:unknown")) == 32_000
