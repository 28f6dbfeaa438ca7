"""A limit in US dollars holds, or the run is refused before its first call."""

from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.models.registry import ModelRegistry
from orga.client.config.known_input import price_check
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.workers.checked import worker_report
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic, Dimension
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.models.usage import ModelPrice, Usage
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest
from tests.support.model.providers import Network, a_request, chunk, message_item, response_events, stream_response
from tests.support.values.core import a_setup

KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENROUTER_API_KEY": "k"}
HOUSE = "openai-compatible:qwen"
HOUSE_PRICE = ModelPrice(input=0.2, output=0.6, cached_input=0.02)


def registry_of(models: ModelsConfig, network: Network | None = None) -> ModelRegistry:
    transport = http.MockTransport(network) if network else None
    return ModelRegistry(KEYS, {"openai-compatible": "http://house/v1"}, transport, prices=models.prices)


def agents_of(models: ModelsConfig, agent: AgentConfig | None = None) -> ConfiguredAgents:
    registry = registry_of(models)
    known = {"default": agent or AgentConfig(tools=())}
    return ConfiguredAgents(
        known, {}, HOUSE, registry.check, a_setup(), is_priced=price_check(models, registry.is_priced)
    )


@pytest.mark.parametrize(
    ("model", "is_taken"),
    [
        pytest.param("openai:gpt-5.5", True, id="a model on the list"),
        pytest.param("anthropic:claude-sonnet-5-5", True, id="another one"),
        pytest.param("openrouter:nobody/nothing", True, id="a router that bills each reply"),
        pytest.param("offline:extractive", True, id="one that costs nothing"),
        pytest.param("openai:gpt-of-tomorrow", False, id="a model that no list knows"),
        pytest.param("ollama:gpt-5.5", False, id="a known name on a local server"),
        pytest.param(f" {HOUSE} ", False, id="a private server"),
    ],
)
async def test_a_cost_limit_needs_a_price(model: str, is_taken: bool) -> None:
    request = PrepareRequest(model=model, config={"max_cost_usd": 0.5})
    if is_taken:
        assert (await agents_of(ModelsConfig()).setup(request)).model == model
        return
    with pytest.raises(InvalidInput, match=r"max_cost_usd: the price of .* is not known.*\[models\.prices\."):
        await agents_of(ModelsConfig()).setup(request)


@pytest.mark.parametrize(
    ("models", "config"),
    [
        pytest.param(ModelsConfig(prices={HOUSE: HOUSE_PRICE}), {"max_cost_usd": 0.5}, id="the price is stated"),
        pytest.param(ModelsConfig(unpriced="allow"), {"max_cost_usd": 0.5}, id="unpriced models are allowed"),
        pytest.param(ModelsConfig(), {}, id="no limit in dollars"),
        pytest.param(ModelsConfig(), {"max_cost_usd": None}, id="the limit of the agent removed"),
    ],
)
async def test_a_run_starts_with_a_price_or_without_a_cost_limit(models: ModelsConfig, config: dict[str, Any]) -> None:
    assert (await agents_of(models).setup(PrepareRequest(config=config))).model == HOUSE


@pytest.mark.parametrize("place", ["agent", "ceiling"])
async def test_a_limit_of_the_agent_or_the_delegating_run_needs_a_price_too(place: str) -> None:
    limit = LoopConfig(max_cost_usd=1.0) if place == "agent" else LoopConfig()
    ceiling: dict[str, Any] = {"max_cost_usd": 1.0} if place == "ceiling" else {}
    request = PrepareRequest.model_validate({"ceiling": ceiling})
    with pytest.raises(InvalidInput, match=HOUSE):
        await agents_of(ModelsConfig(), AgentConfig(tools=(), config=limit)).setup(request)


async def test_a_critics_model_needs_a_price_too() -> None:
    critic = Critic(name="quality", rubric={"sound": Dimension(weight=1.0)}, model="ollama:judge")
    agent = AgentConfig(tools=(), critics=(critic,))
    request = PrepareRequest(model="openai:gpt-5.5", config={"max_cost_usd": 0.5})
    with pytest.raises(InvalidInput, match="the price of ollama:judge is not known"):
        await agents_of(ModelsConfig(), agent).setup(request)


async def test_a_configured_price_determines_the_cost_of_a_reply() -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 100_000, "prompt_tokens_details": {"cached_tokens": 0}}
    bill: dict[str, Any] = {"choices": [], "usage": usage | {"cost": 99.0}}
    chat = [chunk("stop", content="hi"), bill]
    responses = response_events(message_item("hi"), usage={"input_tokens": 1_000_000, "output_tokens": 100_000})
    frames = {HOUSE: chat, "openrouter:a/b": chat, "openai:gpt-5.5": responses}
    models = ModelsConfig(prices=dict.fromkeys(frames, HOUSE_PRICE))
    for name, sent in frames.items():
        provider, model = registry_of(models, Network([stream_response(*sent)])).resolve(name)
        reply = await provider.complete(a_request(model=model), lambda text: None)
        assert reply.cost_usd == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("price", "usage", "expected"),
    [
        pytest.param(HOUSE_PRICE, Usage(input_tokens=100, cached_input_tokens=40), 12.8e-6, id="a cheaper cache"),
        pytest.param(
            ModelPrice(input=1, output=0),
            Usage(input_tokens=100, cached_input_tokens=40),
            100e-6,
            id="a cache at full price",
        ),
        pytest.param(HOUSE_PRICE, Usage(input_tokens=1, cached_input_tokens=50), 0.02e-6, id="counts that contradict"),
        pytest.param(ModelPrice(input=0, output=0), Usage(output_tokens=9), 0.0, id="free is a price"),
    ],
)
def test_the_cost_follows_from_price_and_usage(price: ModelPrice, usage: Usage, expected: float) -> None:
    assert price.call_cost_usd(usage) == pytest.approx(expected)


def test_doctor_reports_agents_whose_cost_limit_has_no_price(tmp_path: Any) -> None:
    agents = {"a": AgentConfig(model=HOUSE, config=LoopConfig(max_cost_usd=1.0)), "b": AgentConfig(model=HOUSE)}
    models = ModelsConfig(base_urls={"openai-compatible": "http://house/v1"})
    report = worker_report(OrgaConfig(agents=agents, models=models), tmp_path, {})
    assert [each["place"] for each in report["problems"] if "max_cost_usd" in each["problem"]] == ["agents.a"]
