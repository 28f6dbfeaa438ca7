"""Writes the worker's part of `orga doctor`: what a worker of a configuration could run, and what prevents that."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orga.activities.adapters.agents.agent_problems import agent_problems, cost_refusal
from orga.activities.adapters.agents.agents import pipeline_problems, with_default_agent
from orga.activities.adapters.agents.tiers import ChosenModels, ModelChoice
from orga.activities.adapters.mcp.mcp_settings import server_settings, unready_servers
from orga.activities.adapters.models.registry import ModelRegistry, default_model
from orga.activities.adapters.policy.engines import PolicySettings, engine_name, policy_engine
from orga.activities.adapters.problem import BrokenPolicies, FileProblem
from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.activities.gate.permits import permit_keys
from orga.activities.knowledge.ports import KnowledgeStore
from orga.client.config.delivery_settings import notify_settings
from orga.client.config.known_input import Environment, model_choice, price_check
from orga.client.config.policy import policy_settings
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import writable_rules
from orga.client.server.home import server_home
from orga.client.workers.knowledge_store import configured_store
from orga.client.workers.parts import configured_deliveries, configured_parts
from orga.client.workers.tool_sources import worker_tools
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.gate import PERMIT_KEY
from orga.workflows.types.tool_calls.tools import ToolSpec


@dataclass(frozen=True)
class _Findings:
    """Problems or warnings of the report, as JSON values."""

    items: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def add(self, place: str, problem: object, remedy: str) -> None:
        self.items.append({"place": place, "problem": str(problem), "remedy": remedy})

    def extend(self, problems: Iterable[FileProblem]) -> None:
        self.items.extend(asdict(problem) for problem in problems)

    @contextmanager
    def collect(self, place: str, remedy: str) -> Generator[None]:
        """Add an error of the block, instead of raising it."""
        try:
            yield
        except BrokenPolicies as error:
            self.extend(error.problems)
        except ValueError as error:
            self.add(place, error, remedy)


def worker_report(config: OrgaConfig, root: Path, env: Environment) -> dict[str, Any]:
    """Return agents, tools, models, policy, problems and warnings as JSON values.

    If the checks of the sections find no problem, all parts are built as in a worker, to find the remaining problems.
    """
    problems, warnings = _Findings(), _Findings()
    tools = _check_tools(config, root, env, problems, warnings)
    agents = with_default_agent(config.agents)
    models = ModelRegistry(env, config.models.base_urls, prices=config.models.prices, endpoints=config.models.endpoints)
    choice = model_choice(config, default_model(env))
    chosen = _chosen_models(agents, choice, problems)
    _check_tiers(config, models.check, problems)
    _check_models(chosen, models.check, problems)
    is_priced = price_check(config.models, models.is_priced)
    for name, agent_models in chosen.items():
        if problem := cost_refusal(agent_models, agents[name].config, is_priced):
            problems.add(f"agents.{name}", problem, "until then, no run of the agent starts")
    problems.extend(agent_problems(agents, tools or None, config.mcp.is_server_tool))
    problems.extend(pipeline_problems(config.pipelines, agents))
    policy = _check_policy(config, env, problems)
    _check_services(config, root, env, problems, warnings)
    if not problems.items:
        with problems.collect("worker", "correct orga.toml, or the environment"):
            configured_parts(config, env, root, knows_attributes=False)
    tiers = config.models.tiers
    names = [name for agent_models in chosen.values() for name in agent_models.models]
    names += [name for tier in tiers.configured_tiers for name in tiers.models(tier)]
    answers = asyncio.run(_model_problems(models, names, warnings))
    return {
        "agents": {
            name: {"model": agent.model or choice.default, "tools": list(agent.tools)} for name, agent in agents.items()
        },
        "tools": list(tools),
        "models": answers,
        "policy": policy,
        "problems": problems.items,
        "warnings": warnings.items,
    }


def _check_tools(
    config: OrgaConfig, root: Path, env: Environment, problems: _Findings, warnings: _Findings
) -> dict[str, ToolSpec]:
    """Return the tools by name, or none if one of them cannot be used."""
    store: KnowledgeStore | None = None
    with problems.collect("tools", "correct [tools] in orga.toml"):
        with problems.collect("knowledge", "correct [knowledge] in orga.toml, or the environment"):
            store = configured_store(config, env, root)
        catalog = ToolCatalog(item.tool for item in worker_tools(config, root, env, store))
        if warning := writable_rules(config, root, env):
            warnings.add("rules", warning.problem, warning.remedy)
        return {name: tool.spec for name, tool in catalog.items()}
    return {}


def _check_policy(config: OrgaConfig, env: Environment, problems: _Findings) -> str:
    with problems.collect("policy", "correct [policy] in orga.toml"):
        settings = policy_settings(config.policy, env)
        policy_engine(settings)  # raises if it cannot judge
        return f"{engine_name(settings)}: {_POLICY_TEXTS[engine_name(settings)](settings)}"
    return ""


def _check_services(config: OrgaConfig, root: Path, env: Environment, problems: _Findings, warnings: _Findings) -> None:
    with problems.collect("mcp", "correct [mcp] in orga.toml, or the environment"):
        servers = server_settings(config.mcp.servers, config.tools.options, env, server_home().logins)
        warnings.extend(unready_servers(servers))
    with problems.collect("notify", "correct [notify] in orga.toml, or the environment"):
        notify_settings(config.notify, env)
    with problems.collect("goals", "correct [goals.deliveries] in orga.toml, or the environment"):
        configured_deliveries(config, root, env)
    with problems.collect("permits", f"correct {PERMIT_KEY}, or unset it on all workers"):
        permit_keys(env)


def _chosen_models(
    agents: Mapping[str, AgentConfig], choice: ModelChoice, problems: _Findings
) -> dict[str, ChosenModels]:
    chosen: dict[str, ChosenModels] = {}
    for name, agent in agents.items():
        with problems.collect(f"agents.{name}", "correct the agent, or [models.tiers]"):
            chosen[name] = choice.chosen_models(agent)
    return chosen


def _check_tiers(config: OrgaConfig, check: Callable[[str], None], problems: _Findings) -> None:
    for tier in config.models.tiers.configured_tiers:
        for model in config.models.tiers.models(tier):
            with problems.collect(f"models.tiers.{tier}", "until then, no run that asks for the tier starts"):
                check(model)


def _check_models(chosen: Mapping[str, ChosenModels], check: Callable[[str], None], problems: _Findings) -> None:
    for name, models in chosen.items():
        for key, model in models.keyed_models():
            with problems.collect(f"agents.{name}.{key}", "name another model"):
                check(model)
        if models.unfit_model_problem:
            problems.add(f"agents.{name}", models.unfit_model_problem, "name another model")


async def _model_problems(models: ModelRegistry, names: Iterable[str], warnings: _Findings) -> dict[str, str]:
    """Return for each model why it cannot be called now, or "". Models that are not configured are left out."""
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(names):
        with suppress(ValueError):
            reasons[name] = await models.unreachable_reason(name)
            if not reasons[name] and (shortage := await models.context_shortage(name)):
                problem, _, remedy = shortage.partition(". ")
                warnings.add(f"model {name}", problem, remedy)
    await models.close()
    return reasons


_POLICY_TEXTS: dict[str, Callable[[PolicySettings], str]] = {
    "cedar": lambda settings: f"the policies of {settings.folder}",
    "opa": lambda settings: str(settings.opa_wasm or settings.opa_url),
    "default": lambda settings: "the tools that an agent lists, and no others",
    "allow": lambda settings: "POLICY IS OFF, every call runs",
}
