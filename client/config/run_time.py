"""Checks the settings that people change at run time, and puts their values into a configuration.

These settings are no more trusted than the input of a run. So no key is allowed that runs code or gives agents more
rights: tools, commands, MCP servers, policies, credentials, addresses, and the models of the local tier.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast, get_args

from pydantic import ValidationError

from orga.activities.adapters.agents.agent_problems import cost_refusal, embedder_refusal, model_refusal
from orga.activities.adapters.agents.agents import with_default_agent
from orga.activities.adapters.agents.tiers import ChosenModels
from orga.client.config.delivery_settings import run_channels
from orga.client.config.known_input import model_choice
from orga.client.config.problems import key_problems
from orga.client.config.sections import OrgaConfig
from orga.client.errors import InvalidSettings
from orga.workflows.decisions.settings import size_problem
from orga.workflows.types.goals.requests import PROMPT_NAMES
from orga.workflows.types.input import MAX_TASK_BYTES
from orga.workflows.types.limits import LIMITS
from orga.workflows.types.models.providers import model_name_problem
from orga.workflows.types.models.tiers import LOCAL_TIER, TIERS, tier_in_model_name
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import InvalidInput, bounds_problem
from orga.workflows.types.settings import SettingProblem
from orga.workflows.types.text import printable_text, similar_name_hint

KeyPath = tuple[str, ...]
Values = Mapping[str, Any]

AGENT_LIMITS = (
    *(limit.key for limit in LIMITS),
    *("tool_timeout_s", "max_concurrent_tools", "context_token_budget", "max_output_tokens", "max_delegation_depth"),
)
"""The keys of an agent's `config` that are limits."""
_MAX_SHOWN_KEYS = 3  # of one problem


def setting_paths(config: OrgaConfig) -> dict[str, KeyPath]:
    """Return all keys that can be set at run time, with their paths in the configuration."""
    paths = [
        *(("goals", "prompts", name) for name in PROMPT_NAMES),
        *(("goals", "tiers", name.removeprefix("goal_")) for name in get_args(GoalPromptName)),
        *(("goals", "deliveries", name, "default") for name in config.goals.deliveries),
        ("models", "default"),
        *(("models", "tiers", tier) for tier in TIERS if tier != LOCAL_TIER),
    ]
    for name in with_default_agent(config.agents):
        paths += [("agents", name, "model"), ("agents", name, "instructions")]
        paths += [("agents", name, "config", limit) for limit in AGENT_LIMITS]
    return {".".join(path): path for path in paths}


def value_at(config: OrgaConfig, path: KeyPath) -> Any:
    """Return the value of a key in its JSON form."""
    value: Any = config.with_agents(with_default_agent(config.agents))
    for name in path:
        value = cast("dict[str, Any]", value)[name] if isinstance(value, dict) else getattr(value, name)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def with_values(config: OrgaConfig, values: Values) -> OrgaConfig:
    """Return the configuration with these values. Raise InvalidSettings for values that are not allowed."""
    config = config.with_agents(with_default_agent(config.agents))
    paths = setting_paths(config)
    problems = list(_value_problems(values, paths))
    if problems:
        raise InvalidSettings(problems)
    document = _settable_document(config)
    for key, value in values.items():
        *sections, last = paths[key]
        table = document
        for name in sections:
            table = table.setdefault(name, {})
        table[last] = value
    try:
        changed = OrgaConfig.model_validate(document, extra="forbid")
    except ValidationError as error:
        raise InvalidSettings(_validation_problems(error, {key: paths[key] for key in values})) from None
    agents = {name: agent.with_settings_of(changed.agents[name]) for name, agent in config.agents.items()}
    models = config.models.with_choice(changed.models.default, changed.models.tiers)
    return config.with_agents(agents).with_models(models).with_goals(changed.goals)


def _value_problems(values: Values, paths: Mapping[str, KeyPath]) -> Iterator[SettingProblem]:
    if problem := bounds_problem(dict(values), frozenset(paths)):
        where, _, detail = problem.partition(": ")
        yield SettingProblem(where=where, detail=detail)
        return
    if problem := size_problem(values):
        yield SettingProblem(where="values", detail=problem)
        return
    for key, value in values.items():
        if key not in paths:
            hint = similar_name_hint(key, list(paths))
            detail = f"cannot be set at run time; {hint}edit orga.toml, if it is a key of that file"
            yield SettingProblem(where=printable_text(key), detail=detail)
        elif key.endswith(".instructions") and isinstance(value, str) and len(value.encode()) > MAX_TASK_BYTES:
            yield SettingProblem(where=key, detail=f"has more than {MAX_TASK_BYTES:,} bytes; shorten it")


def _settable_document(config: OrgaConfig) -> dict[str, Any]:
    """Return the sections with settable keys, in the form of `orga.toml`, and `models.endpoints`, which they name."""
    document = config.model_dump(
        include={
            "models": {"default", "tiers", "endpoints"},
            "goals": {"tiers", "prompts", "deliveries"},
            "agents": {name: {"model", "instructions", "config"} for name in config.agents},
        },
        exclude_unset=True,
    )
    return {"models": {}, "goals": {}, **document, "agents": {name: {} for name in config.agents} | document["agents"]}


def _validation_problems(error: ValidationError, paths: Mapping[str, KeyPath]) -> list[SettingProblem]:
    """Return the problems. `paths` has the settings that may have caused them."""
    problems: list[SettingProblem] = []
    for bad_path, text in key_problems(error, OrgaConfig):
        keys = _settings_with_problem(bad_path, text, paths)
        problems.append(SettingProblem(where=", ".join(keys[:_MAX_SHOWN_KEYS]) or ".".join(bad_path), detail=text))
    return problems


def _settings_with_problem(bad_path: KeyPath, text: str, paths: Mapping[str, KeyPath]) -> list[str]:
    """Return the setting at the path, or around it. A check of a whole section has the path of the section, however.

    Such a check begins its text with the key that has the problem. If it does not, all settings of the section may be
    the cause.
    """
    if around := [key for key, path in paths.items() if bad_path[: len(path)] == path]:
        return around
    depth = len(bad_path)
    inside = {key: ".".join(path[depth:]) for key, path in paths.items() if path[:depth] == bad_path}
    return [key for key, key_in_section in inside.items() if text.startswith(key_in_section)] or list(inside)


def _models_in_setting(key: str, value: object) -> list[str]:
    """Return the models that the setting names. A tier is none."""
    names_models = key == "models.default" or key.startswith("models.tiers.") or key.endswith(".model")
    if not names_models:
        return []
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    return [name for name in names if isinstance(name, str) and name and tier_in_model_name(name) is None]


@dataclass(frozen=True)
class RunTimeRules:
    """Checks settings against the configuration and environment of a process."""

    config: OrgaConfig
    default_model: str
    """The model to use if `models.default` is not set."""
    check_model: Callable[[str], None]
    """Raises ValueError for a model that cannot be called."""
    is_priced: Callable[[str], bool]

    @classmethod
    def for_display(cls, config: OrgaConfig, env: Mapping[str, str]) -> Self:
        """Return the rules of a process that runs no agents. It may lack API keys, so it checks only names."""
        from orga.activities.adapters.models.model_settings import default_model

        def check_name(name: str) -> None:
            if problem := model_name_problem(name, config.models.own_endpoints):
                raise ValueError(problem)

        return cls(config, default_model(env), check_name, lambda model: True)

    def effective(self, values: Values) -> OrgaConfig:
        """Return the configuration with the values. Raise InvalidSettings with the problems of all keys."""
        config = with_values(self.config, values)
        problems = [
            *self._model_problems(values),
            *self._new_agent_problems(config),
            *self._local_tier_problems(config),
        ]
        if problems:
            raise InvalidSettings(problems)
        return config

    def problems(self, values: Values) -> tuple[SettingProblem, ...]:
        """Return the problems of the values, each with its key."""
        try:
            self.effective(values)
        except InvalidSettings as error:
            return error.problems
        return ()

    def _model_problems(self, values: Values) -> Iterator[SettingProblem]:
        """Yield a problem for each model among the values that cannot be called."""
        for key, value in values.items():
            for name in _models_in_setting(key, value):
                try:
                    self.check_model(name)
                except ValueError as error:
                    yield SettingProblem(where=key, detail=str(error))

    def _new_agent_problems(self, config: OrgaConfig) -> Iterator[SettingProblem]:
        """Yield the problems of agents that `config` has and the process's own configuration does not have."""
        before = list(self._agent_problems(self.config))
        yield from (problem for problem in self._agent_problems(config) if problem not in before)

    def _local_tier_problems(self, config: OrgaConfig) -> Iterator[SettingProblem]:
        """Yield a problem for each agent that `config` takes out of the local tier."""
        for name in config.agents:
            if self._is_local(self.config, name) and not self._is_local(config, name):
                detail = "orga.toml binds the agent to the local tier, so its model cannot be changed to another one"
                yield SettingProblem(where=f"agents.{name}.model", detail=detail)

    def _agent_problems(self, config: OrgaConfig) -> Iterator[SettingProblem]:
        channels = run_channels(config.goals.deliveries)
        for name, agent in with_default_agent(config.agents).items():
            texts = list[str]()
            for is_goal in (False, True):
                try:
                    chosen = self._chosen_models(config, name, is_goal=is_goal)
                except InvalidInput as error:
                    texts.append(str(error))
                    continue
                texts.append(model_refusal(chosen, self.check_model))
                texts.append(cost_refusal(chosen, agent.config, self.is_priced))
                embedder = config.knowledge.embedder
                texts.append(embedder_refusal(chosen, agent.config, channels if is_goal else (), embedder))
            yield from (SettingProblem(where=f"agents.{name}", detail=text) for text in dict.fromkeys(texts) if text)

    def _chosen_models(self, config: OrgaConfig, agent: str, *, is_goal: bool = False) -> ChosenModels:
        choice = model_choice(config, self.default_model)
        return choice.chosen_models(with_default_agent(config.agents)[agent], is_goal=is_goal)

    def _is_local(self, config: OrgaConfig, agent: str) -> bool:
        try:
            return bool(self._chosen_models(config, agent).local)
        except InvalidInput:
            return False
