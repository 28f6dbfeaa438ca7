"""Rules in a folder that agents write in: which, and whether anything keeps the agents from them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orga.activities.adapters.agents import with_default
from orga.activities.adapters.listed_globs import is_meant
from orga.activities.adapters.mcp.names import is_of_some_server
from orga.activities.adapters.rules import TooManyFolders
from orga.client.config.manifests import manifests_of
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.workflows.types.sandbox import Isolation

_SHOWN = 5
_ELSEWHERE = "set [tools.files] root to a folder without rules"


@dataclass(frozen=True)
class WritableRules:
    """What an operator is told."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


def writable_rules(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> WritableRules | None:
    """Return it, or None where no agent writes, or no rules are there.

    Raises:
        ValueError: A manifest that cannot be used.
    """
    writers = dict(_writers(config))
    rules = rules_in_use(config, root, env)
    try:
        there = rules.inside(root.resolve()) if writers else []
    except TooManyFolders as error:
        return WritableRules(f"{root}: {error}, so isolated commands are refused", _ELSEWHERE)
    if not there:
        return None
    shown = ", ".join(_told(path, root.resolve()) for path in there[:_SHOWN])
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    problem = f"rules lie in a writable root: {root} holds {shown}{more}"
    if free := [name for name, isolation in writers.items() if isolation == "none"]:
        why = f"{', '.join(free)} can change them, since what is started there is not isolated"
        return WritableRules(f"{problem}; {why}", f'set isolation = "bubblewrap", or {_ELSEWHERE}')
    return WritableRules(f"{problem}; {', '.join(writers)} cannot change them", f"to be sure, {_ELSEWHERE}")


def _writers(config: OrgaConfig) -> Iterator[tuple[str, Isolation | None]]:
    """Yield the tools by which some agent writes, with the isolation of those that start programs."""
    found: dict[str, Isolation | None] = {"write_file": None}
    if config.tools.commands.allow:
        found["run_command"] = config.tools.commands.sandbox.isolation
    for manifest in (file.manifest for file in manifests_of(config)):
        if manifest.command:
            found[manifest.name] = manifest.command.sandbox.isolation
    agents = with_default(config.agents).values()
    is_of_server = partial(is_of_some_server, servers=config.mcp.servers)
    for name, isolation in found.items():
        if any(is_meant(name, agent.tools, is_of_server, is_own=True) for agent in agents):
            yield name, isolation


def _told(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)
