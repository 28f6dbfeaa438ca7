"""Agents, tools, MCP servers and policies that an application gives in code, in addition to `orga.toml`.

Agents, servers and policies become entries of the configuration, so the rules of the file hold for them too.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from orga.activities.adapters.agents.agent_problems import agent_problems
from orga.activities.adapters.tools.activity_tool import ActivityTool, DeferredTool
from orga.activities.adapters.tools.python_function import TOOL_NAME, PythonFunction
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import BlobStore, CodeCritic, ModelProvider, PolicyEngine, Summarizer, Tool
from orga.client.config.policy import has_cedar_files
from orga.client.config.sections import OrgaConfig, PolicyConfig
from orga.client.errors import ConfigError
from orga.workflows.types.agents import DEFAULT_INSTRUCTIONS, READ_ONLY_TOOLS, AgentConfig
from orga.workflows.types.critics import Critic
from orga.workflows.types.input import LoopConfig, LoopSettings
from orga.workflows.types.models.providers import CODE, model_form_problem, model_name_problem
from orga.workflows.types.models.tiers import tier_in_model_name
from orga.workflows.types.record import validation_problems
from orga.workflows.types.tool_calls.decision import CheckedDecision
from orga.workflows.types.tool_calls.delegation import Delegate
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolSpec

__all__ = ["ActivityTool", "Agent", "DeferredTool", "Function"]  # the public API imports no adapters itself

Function = Callable[..., Any] | Tool
"""A tool, or a function or method for agents. A function may be marked by `@tool` or `@activity.defn`."""

T = TypeVar("T")
M = TypeVar("M", bound=Any)
"""A pydantic model."""

_OBJECT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Agent:
    """An agent, as `[agents.NAME]` of `orga.toml` describes one. Invalid settings raise an error at once."""

    name: str
    description: str = ""
    """The agent's purpose. Agents that may delegate to this one read it."""
    model: str | None = None
    """`provider:model` or `tier:NAME`. None takes the worker's default."""
    instructions: str = DEFAULT_INSTRUCTIONS
    tools: Sequence[str | Function] = READ_ONLY_TOOLS
    """The tools that the agent may call: functions, or names of any tools of the worker."""
    delegates: Sequence[str | Delegate] = ()
    """Agents that this one may delegate to, by name."""
    decisions: Mapping[str, CheckedDecision | Mapping[str, Any]] = field(default_factory=dict[str, CheckedDecision])
    critics: Sequence[Critic | Mapping[str, Any]] = ()
    config: LoopConfig | LoopSettings = field(default_factory=LoopConfig)
    """Settings of the agent's runs. A run's own input overrides them."""

    def __post_init__(self) -> None:
        """Raise ConfigError with each key that cannot be used."""
        if not self.name.strip():
            raise ConfigError("Agent(name=...): give it a name that runs can ask for")
        for key, values in (("tools", self.tools), ("delegates", self.delegates), ("critics", self.critics)):
            _require_list(key, values, f"Agent({self.name!r}): ")
        if self.model is not None and tier_in_model_name(self.model) is None:
            _refuse_model_problem(self.name, model_form_problem(self.model))
        _ = self.settings  # validates the rest

    @cached_property
    def settings(self) -> AgentConfig:
        """The agent as an entry of the configuration."""
        entry = {
            "description": self.description,
            "model": self.model,
            "instructions": self.instructions,
            "tools": tuple(tool if isinstance(tool, str) else as_tool(tool).spec.name for tool in self.tools),
            "delegates": tuple(self.delegates),
            "decisions": dict(self.decisions),
            "critics": tuple(self.critics),
            "config": self.config,
        }
        return _validate(AgentConfig, entry, f"Agent({self.name!r})")


def _refuse_model_problem(agent: str, problem: str) -> None:
    if problem:
        raise ConfigError(f"Agent({agent!r}): model: {problem}, or tier:NAME")


def _require_list(key: str, values: Any, owner: str = "") -> None:
    """Refuse a single value, and a generator, because the values are read repeatedly."""
    if not isinstance(values, (list, tuple)):
        raise ConfigError(f"{owner}{key} takes a list; write {key}=[{_example_text(values)}]")


def _example_text(value: Any) -> str:
    if isinstance(value, Agent):
        return f"Agent({value.name!r}, ...)"
    if isinstance(value, str):
        return repr(value)
    return getattr(value, "__name__", "...")


def as_tool(function: Function) -> Tool:
    """Return the tool that calls the function. A tool stays unchanged. Raise ConfigError if no model can call it."""
    if inspect.isclass(function):
        raise ConfigError(
            f"tool {function.__qualname__!r}: it is a class; give a function, or the methods of an object"
        )
    if not callable(function):
        if not hasattr(function, "spec"):
            raise ConfigError(
                f"tool {function!r}: it is neither a function nor a tool; give a function, or its methods"
            )
        if not TOOL_NAME.fullmatch(name := function.spec.name):
            raise ConfigError(f"tool {name!r}: its name does not match {TOOL_NAME.pattern}; rename it")
        return function
    try:
        return PythonFunction(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tool {getattr(function, '__qualname__', function)!r}: {error}") from error


def _require_mapping(key: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} takes objects by name; write {key}={{NAME: ...}}")


def _require_method(part: object, method: str, owner: str) -> None:
    """Refuse a part without the method. None passes, because all parts are optional."""
    if inspect.isclass(part):
        raise ConfigError(f"{owner}: {part.__name__} is a class; give an object of it, {part.__name__}(...)")
    if part is not None and not inspect.iscoroutinefunction(getattr(part, method, None)):
        raise ConfigError(f"{owner}: {type(part).__name__} has no `async def {method}`; see docs/own-parts.md")


@dataclass(frozen=True)
class OwnParts:
    """Parts that an application gives its worker as objects. An object of another kind raises ConfigError."""

    models: Mapping[str, ModelProvider] = field(default_factory=dict[str, ModelProvider])
    """Models by the name after `code:`."""
    critics: Mapping[str, CodeCritic] = field(default_factory=dict[str, CodeCritic])
    """Critics by the name after `code:`."""
    engine: PolicyEngine | None = None
    knowledge: KnowledgeStore | None = None
    summarizer: Summarizer | None = None
    blobs: BlobStore | None = None

    def __post_init__(self) -> None:
        for key, objects, method in (("models", self.models, "complete"), ("critics", self.critics, "review")):
            _require_mapping(key, objects)
            for name, part in objects.items():
                if not _OBJECT_NAME.fullmatch(name):
                    raise ConfigError(f"{key}: {name!r} must be lower-case letters, digits, - and _, such as house-1")
                _require_method(part, method, f"{key}[{name!r}]")
        if shared := sorted(self.models.keys() & self.critics.keys()):
            raise ConfigError(f"critics: {shared[0]!r} is a model, too, and both are code:{shared[0]}; rename one")
        _require_method(self.engine, "judge", "policy")
        _require_method(self.knowledge, "recall", "knowledge")
        _require_method(self.summarizer, "summarise", "summarizer")
        for method in ("put", "get"):
            _require_method(self.blobs, method, "blobs")

    @property
    def names(self) -> list[str]:
        return [f"{CODE}:{name}" for name in (*self.models, *self.critics)]


NO_OWN_PARTS = OwnParts()


@dataclass(frozen=True)
class InCodeParts:
    """Everything that an application gives its worker in code."""

    agents: Sequence[Agent] = ()
    tools: Sequence[Function] = ()
    mcp_servers: Mapping[str, McpServer | Mapping[str, Any]] = field(default_factory=dict[str, McpServer])
    policy: Path | None = None
    own: OwnParts = NO_OWN_PARTS

    def __post_init__(self) -> None:
        _require_list("agents", self.agents)
        _require_list("tools", self.tools)
        _require_mapping("mcp_servers", self.mcp_servers)
        for agent in self.agents:
            if not isinstance(cast("object", agent), Agent):
                raise ConfigError(f"agents: {agent!r} is no orga.Agent; write agents=[Agent(NAME, ...)]")

    @property
    def is_empty(self) -> bool:
        """True if nothing is given in code."""
        has_settings = bool(self.agents or self.tools or self.mcp_servers or self.policy)
        return not has_settings and self.own == NO_OWN_PARTS

    def functions(self) -> list[Tool]:
        """Return all functions as tools, each once: those given to the worker, then those given to agents."""
        of_agents = [tool for agent in self.agents for tool in agent.tools if not isinstance(tool, str)]
        functions: list[Function] = []
        for function in (*self.tools, *of_agents):
            if function not in functions:
                functions.append(function)
        return [as_tool(function) for function in functions]

    def refuse_unknown_tools(self, tools: Mapping[str, ToolSpec], is_of_server: Callable[[str], bool]) -> None:
        """Raise ConfigError for the first agent with tools that the worker does not have."""
        for agent in self.agents:
            problems = agent_problems({agent.name: agent.settings}, tools, is_of_server)
            lines = [
                f"Agent({agent.name!r}): {problem.problem}; {problem.remedy}"
                for problem in problems
                if problem.place == f"agents.{agent.name}.tools"
            ]
            if lines:
                raise ConfigError("\n".join(lines))

    def refuse_missing_models(self, resolve: Callable[[str], object]) -> None:
        """Raise ConfigError for an agent whose model is `code:NAME` if no such model is given.

        Other models are checked when a run starts, because their keys may come later.
        """
        for agent in self.agents:
            if agent.model is not None and agent.model.partition(":")[0].strip() == CODE:
                try:
                    resolve(agent.model)
                except ValueError as error:
                    raise ConfigError(f"Agent({agent.name!r}): model: {error}") from None

    def merged_with(self, config: OrgaConfig) -> OrgaConfig:
        """Return the configuration with these parts. Raise ConfigError for equal names, two policies or a bad model."""
        file = str(config.file or "the configuration")
        for agent in self.agents:
            if agent.model is not None and tier_in_model_name(agent.model) is None:
                _refuse_model_problem(agent.name, model_name_problem(agent.model, config.models.own_endpoints))
        agents = _merge_tables("agent", config.agents, [(agent.name, agent.settings) for agent in self.agents], file)
        servers = [(name, _checked_server(name, server)) for name, server in self.mcp_servers.items()]
        mcp = {"servers": _merge_tables("MCP server", config.mcp.servers, servers, file)}
        merged = config.with_agents(agents).with_mcp(_validate(type(config.mcp), mcp, "mcp_servers"))
        if self.own.engine is not None:
            return merged.with_policy(_own_policy(config.policy, file))
        if self.policy is not None:
            return merged.with_policy(_folder_policy(self.policy, config.policy, file))
        return merged


def _checked_server(name: str, server: McpServer | Mapping[str, Any]) -> McpServer:
    return server if isinstance(server, McpServer) else _validate(McpServer, dict(server), f"mcp_servers[{name!r}]")


def _merge_tables(kind: str, of_file: Mapping[str, T], in_code: Sequence[tuple[str, T]], file: str) -> dict[str, T]:
    merged = dict(of_file)
    for name, entry in in_code:
        if name in of_file:
            raise ConfigError(f"{kind} {name!r} is given in code, and {file} has one; rename one of them, or remove it")
        if name in merged:
            raise ConfigError(f"two {kind}s given in code are called {name!r}; rename one of them")
        merged[name] = entry
    return merged


def _folder_policy(folder: Path, configured: PolicyConfig, file: str) -> PolicyConfig:
    folder = folder.absolute()
    if not has_cedar_files(folder):
        raise ConfigError(f"policy: {folder} has no *.cedar files; name the folder that they lie in")
    has_other_engine = configured.engine not in (None, "cedar") or configured.opa.url or configured.opa.wasm
    has_other_folder = configured.dir is not None and configured.dir.resolve() != folder.resolve()
    if has_other_engine or has_other_folder:
        other = configured.dir or configured.engine or "opa"
        raise ConfigError(f"policy: {folder} is given in code, and {file} has a policy ({other}); remove one of them")
    return configured.with_dir(folder).with_engine("cedar")


def _own_policy(configured: PolicyConfig, file: str) -> PolicyConfig:
    other_engine = None if configured.engine == "code" else configured.engine
    if other := configured.dir or configured.opa.url or configured.opa.wasm or other_engine:
        raise ConfigError(f"policy: an object is given in code, and {file} has a policy ({other}); remove one of them")
    return configured.with_engine("code")


def _validate(kind: type[M], entry: Mapping[str, Any], owner: str) -> M:
    try:
        return kind.model_validate(entry, extra="forbid")
    except ValidationError as error:
        raise ConfigError("\n".join(f"{owner}: {problem}" for problem in validation_problems(error, kind))) from None
