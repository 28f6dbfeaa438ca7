"""Agents from configuration: which model, instructions, tools and limits a run works with."""

from collections.abc import Callable, Mapping

from rapidfuzz import fuzz, process

from workflows.types.agents import AgentConfig
from workflows.types.context import PrepareRequest, Setup
from workflows.types.input import InvalidInput, LoopConfig
from workflows.types.tools import ToolSpec


class ConfiguredAgents:
    """The agents of `orga.toml`. An agent named `default` always exists."""

    def __init__(
        self,
        agents: Mapping[str, AgentConfig],
        tools: Mapping[str, ToolSpec],
        default_model: str,
        check_model: Callable[[str], None],
        worker_facts: Setup,
    ) -> None:
        """Take what the worker has.

        Args:
            agents: By name.
            tools: Specs of all tools that the worker runs, by name.
            default_model: For agents that name none.
            check_model: Raises ValueError, with cause and remedy, for a model that cannot be called.
            worker_facts: A setup whose policy, search attributes and roll-over limits are taken over.
        """
        self.known = {"default": AgentConfig(), **agents}
        self._tools = tools
        self._default_model = default_model
        self._check_model = check_model
        self._facts = worker_facts

    async def setup(self, request: PrepareRequest) -> Setup:
        """Return the setup of a run; the run's own settings win over the agent's."""
        agent = self.known.get(request.agent)
        if agent is None:
            raise InvalidInput(f"agent: there is no agent {request.agent!r}; {_known(request.agent, self.known)}")
        model = request.model or agent.model or self._default_model
        try:
            self._check_model(model)
        except ValueError as error:
            raise InvalidInput(f"model: {error}") from None
        return self._facts.model_copy(
            update={
                "agent": request.agent,
                "model": model,
                "instructions": agent.instructions if request.instructions is None else request.instructions,
                "tools": self._chosen(request, agent),
                "config": _merged(agent.config, request),
            }
        )

    def _chosen(self, request: PrepareRequest, agent: AgentConfig) -> tuple[ToolSpec, ...]:
        names = agent.tools if request.tools is None else request.tools
        for name in names:
            if name not in agent.tools:
                raise InvalidInput(
                    f"tools: agent {request.agent!r} does not list {name!r}; {_known(name, agent.tools)}"
                )
            if name not in self._tools:
                raise InvalidInput(f"tools: this worker has no tool {name!r}; {_known(name, self._tools)}")
        return tuple(self._tools[name] for name in dict.fromkeys(names))


def _merged(config: LoopConfig, request: PrepareRequest) -> LoopConfig:
    base, given = config.model_dump(), request.config
    recovery = {**base["recovery"], **given.get("recovery", {})}
    return LoopConfig.model_validate({**base, **given, "recovery": recovery})


def _known(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    names = sorted(known)
    near = process.extractOne(name, names, scorer=fuzz.ratio, score_cutoff=60)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(names) or 'none'}"
