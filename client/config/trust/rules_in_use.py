"""Finds the rules that are in use: all files that decide over agents. No tool of an agent may write them."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import escape, has_magic
from itertools import chain, takewhile
from pathlib import Path

from orga.activities.adapters.agents.agents import with_default_agent
from orga.activities.adapters.agents.offered_tools import is_tool_listed
from orga.activities.adapters.rules import Rules, TooManyFolders
from orga.client.config.manifests import configured_manifests, manifest_paths, read_manifests
from orga.client.config.policy import FOLDER
from orga.client.config.sections import OrgaConfig, tool_folders
from orga.client.config.trust.user_code import UserCode, modules, scripts
from orga.client.server.home import cache_folder, server_home, user_path
from orga.own_code import ROOT, is_installed, is_ours
from orga.workflows.types.tool_calls.sandbox import Isolation

_FILE_VARIABLES = ("ORGA_CONFIG", "ORGA_SIGNING_KEY_FILE", "TEMPORAL_CONFIG_FILE")
_POLICY_SUFFIXES = ("cedar", "test.toml")
_LINKED_FROM_PACKAGE = ("activities", "client", "workflows", "worker.py")
"""In a clone, these lie next to the package `orga`, which has links to them."""
_MAX_SHOWN = 5  # paths in a warning
_MOVE_ROOT = "set [tools.files] root to a folder without rules"


def rules_in_use(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> Rules:
    """Return the rules of a worker with this configuration that starts here. Its tools write below `root`."""
    working_folder = Path.cwd()
    variables = (user_path(env[name]).absolute() for name in _FILE_VARIABLES if env.get(name))
    named = [config.file, config.policy.opa.wasm, config.audit.signing_key_file, *variables]
    globs = _rule_globs(config, working_folder)
    code = user_code(config, root)
    return Rules(
        files=tuple(sorted({*(path for path in named if path), *code.files, *_running_modules(root)})),
        folders=tuple(folder for folder in globs if not _is_above(folder, root)),
        globs=tuple(chain.from_iterable(inside for folder, inside in globs.items() if _is_above(folder, root))),
        modules=tuple(sorted(code.modules)),
        installed=tuple(path for path in _installed_files(working_folder) if not _is_above(path, root)),
        stores=tuple(_knowledge_files(config)),
    )


def _rule_globs(config: OrgaConfig, working_folder: Path) -> dict[Path, list[str]]:
    """Return the folders of policies and manifests, each with the globs of its rules."""
    base = config.file.parent if config.file else working_folder
    globs: dict[Path, list[str]] = {}
    for folder in (base / FOLDER, config.policy.dir):
        if folder:
            globs[folder] = [f"{escape(str(folder))}/**/*.{suffix}" for suffix in _POLICY_SUFFIXES]
    for pattern in config.tools.manifests:
        if has_magic(pattern):
            globs.setdefault(_glob_folder(pattern), []).append(pattern)
    return globs


def user_code(config: OrgaConfig, root: Path) -> UserCode:
    """Return the code that the configuration makes run. Some of it may not exist yet."""
    working_folder = Path.cwd()
    paths = manifest_paths(config.tools.manifests)
    commands = [file.manifest.command for file in read_manifests(paths)[0] if file.manifest.command]
    code = UserCode(frozenset(path.absolute() for path in paths)) | modules(config.tools.python, tool_folders(config))
    for command in commands:
        words = [word for part in command.argv for word in part.argv]
        code |= scripts(words, root / command.cwd, command.env)
    for server in config.mcp.servers.values():
        if server.command:
            code |= scripts([server.command, *server.args], working_folder / (server.cwd or ""))
    return code


def _knowledge_files(config: OrgaConfig) -> Iterator[Path]:
    """Yield the configured store and the files that SQLite writes next to it, because agents are shown its items."""
    if path := config.knowledge.path:
        yield from (path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal"))


def _running_modules(root: Path) -> Iterator[Path]:
    """Yield the files below the root that this process has loaded as modules of an application, not of `orga`."""
    prefixes = (f"{root}/", f"{root.resolve()}/")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and not is_ours(name) and file.startswith(prefixes):
            path = Path(file)
            if not is_installed(path.resolve()):
                yield path


def _glob_folder(pattern: str) -> Path:
    """Return the longest folder without wildcards that begins the glob."""
    return Path(*takewhile(lambda part: not has_magic(part), Path(pattern).parts)).absolute()


def _installed_files(working_folder: Path) -> Iterator[Path]:
    yield from (server_home().folder, cache_folder(), Path(sys.prefix))
    package = ROOT / "orga"
    yield from (package, ROOT / ".cache", *((package / name).resolve() for name in _LINKED_FROM_PACKAGE))
    yield from (working_folder / entry for entry in sys.path)


def _is_above(path: Path, root: Path) -> bool:
    """Return whether the path contains the root. It is then no rule as a whole, or agents could not write anything."""
    return root.is_relative_to(path.resolve())


@dataclass(frozen=True)
class WritableRules:
    """A warning to an operator that rules lie in a folder that agents can write."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


def writable_rules(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> WritableRules | None:
    """Return the warning, or None if no agent can write or the root has no rules. A bad manifest raises ValueError."""
    writers = dict(_writing_tools(config))
    rules = rules_in_use(config, root, env)
    try:
        paths = rules.paths_inside(root.resolve()) if writers else []
    except TooManyFolders as error:
        return WritableRules(f"{root}: {error}, so isolated commands are refused", _MOVE_ROOT)
    if not paths:
        return None
    shown = ", ".join(_path_text(path, root.resolve()) for path in paths[:_MAX_SHOWN])
    more = f" and {len(paths) - _MAX_SHOWN} more" if len(paths) > _MAX_SHOWN else ""
    problem = f"rules lie in a writable root: {root} holds {shown}{more}"
    if unrestricted := [name for name, isolation in writers.items() if isolation == "none"]:
        why = f"{', '.join(unrestricted)} can change them, because the programs that they start are not isolated"
        return WritableRules(f"{problem}; {why}", f'set isolation = "bubblewrap", or {_MOVE_ROOT}')
    return WritableRules(f"{problem}; {', '.join(writers)} cannot change them", f"to be sure, {_MOVE_ROOT}")


def _writing_tools(config: OrgaConfig) -> Iterator[tuple[str, Isolation | None]]:
    """Yield the tools with which some agent can write files, and the isolation of the programs that they start."""
    tools: dict[str, Isolation | None] = {"write_file": None, "edit_file": None}
    if config.tools.commands.allow:
        tools["run_command"] = config.tools.commands.sandbox.isolation
    for manifest in (file.manifest for file in configured_manifests(config)):
        if manifest.command:
            tools[manifest.name] = manifest.command.sandbox.isolation
    agents = with_default_agent(config.agents).values()
    for name, isolation in tools.items():
        if any(is_tool_listed(name, agent.tools, config.mcp.is_server_tool, is_own=True) for agent in agents):
            yield name, isolation


def _path_text(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)
