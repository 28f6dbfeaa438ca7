"""Tiers of models: their content, the models that a run asks, and the limit to the `local` tier."""

from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.prepare import PrepareActivities
from orga.client.cli.shown.status_text import status_lines
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.risks import risks
from orga.client.workers.checked import worker_report
from orga.workflows.decisions.result import agent_status
from orga.workflows.decisions.tool_calls.delegation import delegate_ceiling, is_bound_to_local_models
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic, Dimension
from orga.workflows.types.goals.deliveries import Channel
from orga.workflows.types.input import AgentInput, Lineage, LoopConfig
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.providers import PROVIDERS
from orga.workflows.types.models.tiers import RUN_TIER, GoalTiers, ModelTiers, Tier
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW
from orga.workflows.types.recall import KNOWLEDGE_TOOLS
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest, Setup
from tests.support.runs.delivered import delivery_setup
from tests.support.tools.activities import Beats
from tests.support.values.configured import config_error_at
from tests.support.values.core import a_setup, a_spec, a_state, at

HEAVY = ("anthropic:claude-opus-5", "openai:gpt-6")
TIERS = ModelTiers(local=("ollama:qwen", "ollama:llama"), light=("openai:nano",), heavy=HEAVY)
JUDGE = Critic(name="judge", rubric={"truth": Dimension(weight=1)})


def agents(
    tiers: ModelTiers = TIERS, *, goals: GoalTiers | None = None, default: str = "openai:gpt-6", **agent: Any
) -> ConfiguredAgents:
    known = {"a": AgentConfig(tools=(), **agent)}
    goal_tiers = goals or GoalTiers()
    return ConfiguredAgents(known, {}, default, _has_a_key, a_setup(), tiers=tiers, goal_tiers=goal_tiers)


def _has_a_key(model: str) -> None:
    if model.startswith("openrouter:"):
        raise ValueError("openrouter has no key: set OPENROUTER_API_KEY, or choose another model")


async def prepared(known: ConfiguredAgents, *, is_goal: bool = False, **request: Any) -> Setup:
    return await known.setup(PrepareRequest(agent="a", **request), is_goal=is_goal)


BOUND = Ceiling(tier="local")


@pytest.mark.parametrize(
    ("config", "named", "expected"),
    [
        pytest.param({"model": "tier:heavy"}, None, HEAVY, id="an agent's tier"),
        pytest.param({"model": "tier:heavy"}, "tier:light", ("openai:nano",), id="the tier named at the start wins"),
        pytest.param({"default": "tier:heavy"}, None, HEAVY, id="the default model is a tier"),
        pytest.param({}, " tier: heavy ", HEAVY, id="spaces around it"),
        pytest.param({"model": "openai:gpt-6"}, None, ("openai:gpt-6",), id="no tier"),
        pytest.param({"tiers": ModelTiers()}, "tier:heavy", ("openai:gpt-6",), id="no tier is configured"),
    ],
)
async def test_a_run_asks_the_models_of_its_tier_in_order(
    config: dict[str, Any], named: str | None, expected: tuple[str, ...]
) -> None:
    setup = await prepared(agents(**config), model=named)
    assert (setup.model, setup.models_for()) == (expected[0], expected)


async def test_a_run_without_tiers_records_none() -> None:
    setup = await prepared(agents(model="openai:gpt-6"))
    assert "tiers" not in setup.model_dump(exclude_unset=True)


async def test_a_tier_without_configuration_is_recorded_as_the_default_model() -> None:
    setup = await prepared(agents(ModelTiers()), model="tier:light")
    assert setup.tiers == {RUN_TIER: Tier(name="light", models=("openai:gpt-6",), is_default=True)}


@pytest.mark.parametrize(
    ("model", "says"),
    [
        pytest.param(
            "tier:hevy",
            r"model: there is no tier 'hevy'; did you mean 'heavy'\? there are: heavy, light, local, medium",
            id="an unknown tier",
        ),
        pytest.param(
            "tier:medium",
            r"model: tier medium has no models; give it some, \[models.tiers\] medium = \[...\], or name one of local,",
            id="a tier without models",
        ),
    ],
)
async def test_an_unusable_tier_is_refused(model: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        await prepared(agents(model=model))


async def test_each_model_of_a_tier_must_be_usable() -> None:
    """A fallback without a key would have nothing to fall back to."""
    with pytest.raises(InvalidInput, match="model: openrouter has no key"):
        await prepared(agents(ModelTiers(heavy=("openai:gpt-6", "openrouter:a/b"))), model="tier:heavy")


GOALS = GoalTiers(plan="heavy", evaluate="light")


async def test_goal_prompts_can_have_their_own_tiers() -> None:
    setup = await prepared(agents(goals=GOALS), is_goal=True)
    assert (setup.models_for("goal_plan"), setup.models_for("goal_evaluate")) == (HEAVY, ("openai:nano",))
    assert (setup.model, setup.models_for("goal_decide")) == ("openai:gpt-6", ("openai:gpt-6",))


async def test_a_goal_prompt_s_tier_without_models_is_refused_under_its_key() -> None:
    light_only = ModelTiers(light=("openai:nano",))
    with pytest.raises(InvalidInput, match=r"^goals\.tiers\.plan: tier heavy has no models"):
        await prepared(agents(light_only, goals=GOALS), is_goal=True)


@pytest.mark.parametrize(
    ("is_goal", "request_"),
    [
        pytest.param(False, {}, id="the run of an agent has no goal prompts"),
        pytest.param(True, {"model": "openai:gpt-6"}, id="a goal with a named model uses it for all prompts"),
        pytest.param(True, {"model": "tier:local"}, id="the local tier applies to all prompts"),
        pytest.param(True, {"ceiling": BOUND}, id="the local tier is inherited from the parent run"),
    ],
)
async def test_goal_prompts_have_no_tiers_in_these_cases(is_goal: bool, request_: dict[str, Any]) -> None:
    setup = await prepared(agents(goals=GOALS), is_goal=is_goal, **request_)
    assert setup.tiers.keys() <= {RUN_TIER}


@pytest.mark.parametrize(("kind", "has_turns"), [(GOAL_WORKFLOW, True), (AGENT_WORKFLOW, False)])
async def test_only_a_goal_is_prepared_with_tiers_for_its_prompts(kind: str, has_turns: bool) -> None:
    prepare = PrepareActivities(agents(goals=GOALS), _Keeps()).prepare  # pyright: ignore[reportArgumentType]
    setup = await Beats(workflow_type=kind).run(prepare, PrepareRequest(agent="a"))
    assert ("goal_plan" in setup.tiers) is has_turns


class _Keeps:
    def keep_setup(self, setup: Setup) -> None:
        """Ignore the setup."""


async def test_a_critic_can_have_a_tier() -> None:
    setup = await prepared(agents(critics=(JUDGE.with_model("tier:heavy"),)))
    assert (setup.critics[0].model, setup.models_for("critic:judge")) == (HEAVY[0], HEAVY)


@pytest.mark.parametrize(
    ("agent", "model"),
    [
        pytest.param({}, "ollama:qwen", id="the local tier without its own model"),
        pytest.param({"model": "tier:local"}, "ollama:qwen", id="the tier"),
        pytest.param({"model": "ollama:llama"}, "ollama:llama", id="a model of the tier"),
        pytest.param(
            {"tiers": ModelTiers(local=("ollama:llama",), light=("ollama:llama",)), "model": "tier:light"},
            "ollama:llama",
            id="another tier with only local models",
        ),
    ],
)
async def test_a_delegate_bound_to_the_local_tier_can_ask_these_models(agent: dict[str, Any], model: str) -> None:
    assert (await prepared(agents(**agent), ceiling=BOUND)).model == model


@pytest.mark.parametrize(
    ("agent", "ceiling", "says"),
    [
        pytest.param({"model": "openai:gpt-6"}, BOUND, "model: openai:gpt-6 asks openai:gpt-6, but", id="a model"),
        pytest.param({"model": "tier:heavy"}, BOUND, "model: tier:heavy asks anthropic:", id="another tier"),
        pytest.param(
            {"critics": (JUDGE.with_model("openai:gpt-6"),)},
            BOUND,
            r"critics\.judge\.model: .* bound to the local tier",
            id="a delegate's critic",
        ),
        pytest.param(
            {"model": "tier:local", "critics": (JUDGE.with_model("tier:light"),)},
            Ceiling(),
            r"critics\.judge\.model: tier:light asks openai:nano, .*\(ollama:qwen, ollama:llama\)",
            id="the run's own critic",
        ),
    ],
)
async def test_the_local_tier_binds_the_models_of_delegates_and_critics(
    agent: dict[str, Any], ceiling: Ceiling, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        await prepared(agents(**agent), ceiling=ceiling)


NO_CONFIG = LoopConfig()
KNOWING = LoopConfig.model_validate({"knowledge": {}})
REMEMBERS = delivery_setup(memory="memory").deliveries
MAY_BE_NAMED = delivery_setup(default=False, memory="memory", ops="webhook").deliveries


@pytest.mark.parametrize(
    ("is_goal", "embedder", "channels", "config", "says"),
    [
        pytest.param(False, "openai:small", (), KNOWING, "config.knowledge: the embedder openai:small", id="a run"),
        pytest.param(True, "openai:small", REMEMBERS, NO_CONFIG, "goals.deliveries.memory: the embedder", id="a goal"),
        pytest.param(False, "openai:small", REMEMBERS, NO_CONFIG, "", id="no knowledge in use"),
        pytest.param(True, "openai:small", MAY_BE_NAMED, NO_CONFIG, "", id="no memory by default"),
        pytest.param(True, "ollama:nomic", REMEMBERS, KNOWING, "", id="a provider of the tier"),
        pytest.param(True, "hashing", REMEMBERS, KNOWING, "", id="in the worker's process"),
    ],
)
async def test_a_remote_embedder_is_not_used_by_a_run_bound_to_the_local_tier(
    is_goal: bool, embedder: str, channels: tuple[Channel, ...], config: LoopConfig, says: str
) -> None:
    facts = a_setup().with_deliveries(channels)
    known = {"a": AgentConfig(tools=(), config=config)}
    tools = {name: a_spec(name) for name in KNOWLEDGE_TOOLS}
    worker = ConfiguredAgents(known, tools, "openai:gpt-6", _has_a_key, facts, tiers=TIERS, embedder=embedder)
    if says:
        with pytest.raises(InvalidInput, match=says):
            await prepared(worker, is_goal=is_goal, model="tier:local")
        with pytest.raises(InvalidInput, match=says):
            await prepared(worker, is_goal=is_goal, ceiling=BOUND)
    else:
        setup = await prepared(worker, is_goal=is_goal, model="tier:local")
        is_shown = not embedder.startswith("openai:")
        assert setup.deliveries == tuple(each for each in channels if is_shown or each.kind != "memory")
    free = await prepared(worker, is_goal=is_goal)
    assert free.deliveries == channels


LOCAL = {RUN_TIER: Tier(name="local", models=("ollama:qwen",))}


@pytest.mark.parametrize(
    ("tiers", "above", "bound"),
    [
        pytest.param(LOCAL, Ceiling(), True, id="the run uses the local tier"),
        pytest.param({}, BOUND, True, id="the parent run is bound"),
        pytest.param({RUN_TIER: Tier(name="heavy", models=HEAVY)}, Ceiling(), False, id="another tier"),
        pytest.param({}, Ceiling(), False, id="no tier"),
    ],
)
def test_delegates_inherit_the_limit_to_the_local_tier(tiers: dict[str, Tier], above: Ceiling, bound: bool) -> None:
    run_input = AgentInput(task="t", lineage=Lineage(parent="p", chain=("p",), ceiling=above))
    state = a_state(setup=a_setup(tiers=tiers), input=run_input)
    assert is_bound_to_local_models(state) is bound
    assert delegate_ceiling(state, "child", at(0)).tier == ("local" if bound else None)


@pytest.mark.parametrize(
    ("toml", "line", "says"),
    [
        pytest.param(
            '[models.tiers]\nheavy = ["openai:gpt-6", "gpt-7"]\n',
            2,
            "models.tiers.heavy.1: 'gpt-7' names no model: write provider:model, with provider one of openrouter,",
            id="no provider",
        ),
        pytest.param('[models.tiers]\nlight = ["tier:heavy"]\n', 2, "'tier:heavy' names no model", id="another tier"),
        pytest.param('[models.tiers]\nlight = ["openai:a", "openai:a"]\n', 2, "is listed twice", id="one model twice"),
        pytest.param(
            '[models.tiers]\nhuge = ["openai:a"]\n', 2, "unknown key; allowed: local, light, medium, heavy", id="a tier"
        ),
        pytest.param(
            '[models]\ndefault = "tier:heavy"\n',
            1,
            "default = 'tier:heavy' names a tier without models; give it some: [models.tiers] heavy",
            id="an empty default tier",
        ),
        pytest.param(
            '[models.tiers]\nlight = ["openai:a"]\n\n[goals.tiers]\nplan = "heavy"\n',
            4,
            "goals: tiers.plan = 'heavy' names a tier without models; give it some: [models.tiers] heavy = [...], or "
            "name one of light",
            id="an empty tier of a prompt",
        ),
        pytest.param('[goals.tiers]\nplan = "strong"\n', 2, "goals.tiers.plan: 'strong' should be", id="no tier"),
        pytest.param('[goals.tiers]\nthink = "heavy"\n', 2, "goals.tiers.think: unknown key", id="no such prompt"),
    ],
)
def test_a_mistake_is_reported_with_file_line_key_and_remedy(tmp_path: Path, toml: str, line: int, says: str) -> None:
    assert says in config_error_at(tmp_path, toml, line)


def test_tiers_need_no_trust(tmp_path: Path) -> None:
    """An agent's model needs none either, because keys are sent only to addresses from the user's environment."""
    file = {"models": {"tiers": {"heavy": ["openai:a"]}}, "goals": {"tiers": {"plan": "heavy"}}}
    assert risks(file, tmp_path) == []


def test_the_doctor_checks_each_model_of_each_tier(tmp_path: Path) -> None:
    given = {"models": {"tiers": {"heavy": ["offline:extractive", "openai:gpt-6"], "light": ["offline:nothing"]}}}
    found = worker_report(OrgaConfig.model_validate(given), tmp_path, {})["problems"]
    assert [(each["place"], each["problem"].partition(":")[0]) for each in found] == [
        ("models.tiers.light", "'offline"),
        ("models.tiers.heavy", "openai has no key"),
    ]


def test_the_registry_knows_all_providers() -> None:
    assert {each.name for each in PROVIDERS.values() if not each.is_remote} == {"local", "offline", "code"}
    keys = {provider.key: "k" for provider in PROVIDERS.values() if provider.key} | {"AWS_REGION": "eu-west-1"}
    for provider in (each for each in PROVIDERS.values() if each.is_remote):
        ModelRegistry(keys, {"openai-compatible": "http://h/v1"}).check(f"{provider.name}:m")


@pytest.mark.parametrize(
    ("tiers", "line"),
    [
        pytest.param({}, "tiers      none, every prompt goes to that model", id="none"),
        pytest.param(
            {"run": Tier(name="heavy", models=HEAVY)},
            "tier       run: heavy, anthropic:claude-opus-5, then openai:gpt-6",
            id="the tier of the run",
        ),
        pytest.param(
            {"goal_plan": Tier(name="light", models=("openai:nano",))},
            "tier       plan: light, openai:nano",
            id="the tier of a prompt",
        ),
        pytest.param(
            {"run": Tier(name="light", models=("openai:gpt-6",), is_default=True)},
            "tier       run: light, openai:gpt-6 (the default model, as no tier is configured)",
            id="the default model",
        ),
    ],
)
def test_status_shows_the_tiers_in_effect(tiers: dict[str, Tier], line: str) -> None:
    shown = agent_status(a_state(setup=a_setup(tiers=tiers)), at(0))
    assert shown.tiers == tiers
    assert line in status_lines("run", shown)


async def test_the_settings_of_a_tier_hold_for_its_prompts_and_else_after_those_of_the_run() -> None:
    known = ConfiguredAgents(
        {"a": AgentConfig(tools=(), model="tier:heavy", critics=(JUDGE.with_model("tier:light"),))},
        {},
        "openai:gpt-6",
        _has_a_key,
        a_setup(),
        tiers=TIERS,
        goal_tiers=GoalTiers(evaluate="light"),
        tier_settings={"light": ModelSettings(effort="low"), "heavy": ModelSettings(effort="high")},
    )
    plain = await prepared(known)
    assert (plain.settings_for().effort, plain.settings_for("critic:judge").effort) == ("high", "low")
    chosen = await prepared(known, is_goal=True, config={"effort": "max"})
    assert (chosen.settings_for("goal_plan").effort, chosen.settings_for("goal_evaluate").effort) == ("max", "low")


@pytest.mark.parametrize("config", [{"effort": "high"}, {"thinking_tokens": 100}])
async def test_a_model_in_the_worker_is_refused_if_it_has_to_think(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"config.{next(iter(config))}: offline:extractive does not think"):
        await prepared(agents(model="offline:extractive"), config=config)
    assert (await prepared(agents(model="offline:extractive"), config={"effort": "none"})).config.effort == "none"
