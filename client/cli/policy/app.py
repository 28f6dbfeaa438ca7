"""The `orga policy` commands: check, test and explain policies, and print the Cedar schema.

`check` and `schema` are here. Modules of the policy engine are imported only by the functions that need them.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from orga.activities.adapters.problem import BrokenPolicies, FileProblem
from orga.client.cli.commands import LastRunCommand
from orga.client.cli.exit_codes import ExitCode, usage_errors
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.policy import explain
from orga.client.cli.policy.explain import Surface, build_policy_engine, chosen_policy_settings
from orga.client.cli.shown.text import (
    count_text,
    file_problem_lines,
    write_document,
    write_json,
    write_note,
    write_result,
)
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.tool_calls.loop_tools import loop_tool, tool_needing
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec

if TYPE_CHECKING:
    from orga.activities.adapters.policy.cedar_names import PolicyVocabulary
    from orga.activities.adapters.policy.cedar_policy import CedarPolicy


async def check(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="A folder of *.cedar files. Default: that of orga.toml.", show_default=False
        ),
    ] = None,
    *,
    surface: Surface = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Parse and validate policies, and show each problem with file, line and remedy. Exit code 2 means there are some.

    A worker refuses to start with policies that are not valid, and denies everything if they become invalid later. It
    does not check names. This command does: tools, agents, tags and arguments must exist in this configuration or, with
    DIR, in its tests. Without --surface all surfaces are checked.

    Example: orga policy check policies
    """
    from orga.activities.adapters.policy.cedar_names import unknown_name_problems
    from orga.activities.adapters.policy.engines import engine_name

    settings = chosen_policy_settings(folder, surface, config, dict(os.environ))
    if engine_name(settings) != "cedar" or settings.folder is None:
        build_policy_engine(settings)
        write_note(
            "OPA decides here. `opa check` finds problems in its rules, and `orga policy test` runs test cases with it"
        )
        write_note("names of tools, agents and arguments in Rego cannot be checked")
        return 0
    surfaces = [settings.surface] if settings.surface else [None, *_surface_names(settings.folder)]
    policies, problems, version = _read_surfaces(settings.folder, surfaces)
    vocabulary = await _vocabulary(config, folder)
    unknown_names = [problem for policy in policies for problem in unknown_name_problems(policy, vocabulary)]
    if json:
        write_json(
            {
                "ok": not problems and not unknown_names,
                "version": version,
                "policies": [_policy_json(policy) for policy in policies],
                "problems": [asdict(problem) for problem in (*problems, *unknown_names)],
            }
        )
    else:
        faulty = {problem.place for problem in unknown_names}
        good = [policy for policy in policies if not faulty & _line_places(policy)]
        lines = [*map(_policy_line, good), *chain.from_iterable(map(file_problem_lines, (*problems, *unknown_names)))]
        write_result(*(lines or ["no policies: everything is denied"]))
    write_note(_summary(policies, problems, unknown_names, version))
    if unknown_names and folder is None:
        by_folder = f"orga policy check {quote(str(settings.folder))}"
        write_note(
            f"tools and agents that exist only in code are known if *.test.toml files describe them: {by_folder}"
        )
    return ExitCode.USAGE if problems or unknown_names else ExitCode.COMPLETED


async def _vocabulary(config_file: Path | None, folder: Path | None) -> "PolicyVocabulary":
    """Return the names that policies may use. Raise UsageError if a tool of the configuration cannot be loaded."""
    config = load_config(config_file)
    with usage_errors():
        vocabulary = await _configured_vocabulary(config)
    return vocabulary if folder is None else _with_tests(vocabulary, folder)


def _surface_names(folder: Path) -> list[str]:
    return sorted(inner.name for inner in folder.iterdir() if inner.is_dir() and any(inner.glob("*.cedar")))


def _line_places(policy: "CedarPolicy") -> set[str]:
    """Return `file:line` for each line of the policy's text."""
    lines = range(policy.statement.text.count("\n") + 1)
    return {f"{policy.statement.file}:{policy.statement.line + line}" for line in lines}


def _read_surfaces(folder: Path, surfaces: Sequence[str | None]) -> "tuple[list[CedarPolicy], list[FileProblem], str]":
    """Return all surfaces' policies (each once) and problems, and the version of the first readable surface."""
    from orga.activities.adapters.policy.cedar import read_policies
    from orga.activities.adapters.policy.cedar_files import files_version, policy_files

    policies: dict[str, CedarPolicy] = {}
    problems: dict[FileProblem, None] = {}
    version = ""
    for surface in surfaces:
        try:
            files = policy_files(folder, surface)
        except BrokenPolicies as error:
            problems |= dict.fromkeys(error.problems)
            continue
        surface_policies, surface_problems = read_policies(files)
        policies |= {policy.statement.place: policy for policy in surface_policies}
        problems |= dict.fromkeys(surface_problems)
        version = version or files_version(files)
    return list(policies.values()), list(problems), version


def _policy_json(policy: "CedarPolicy") -> dict[str, object]:
    approval = policy.annotations.approval
    return {
        "id": policy.policy_id,
        "place": policy.statement.place,
        "effect": "forbid" if policy.is_forbid else "permit",
        "approval": approval.model_dump() if approval else None,
    }


def _policy_line(policy: "CedarPolicy") -> str:
    approval = policy.annotations.approval
    asks = f", with the approval of {' or '.join(approval.approvers) or 'anyone'}" if approval else ""
    effect = "forbid" if policy.is_forbid else "permit"
    if policy.is_forbid and approval:
        effect = "unless approved forbid"
    return f"✓ {policy.policy_id}: {effect}{asks} ({policy.statement.place})"


def _summary(
    policies: "Sequence[CedarPolicy]",
    problems: "Sequence[FileProblem]",
    unknown_names: "Sequence[FileProblem]",
    version: str,
) -> str:
    if problems:
        return f"{len(problems)} to fix: until then the whole set is refused and everything is denied"
    if unknown_names:
        return f"{len(unknown_names)} to fix: a worker accepts such policies, but they protect nothing"
    return f"{count_text(len(policies), 'policy', 'policies')}, version {version}"


async def _configured_vocabulary(config: OrgaConfig) -> "PolicyVocabulary":
    """Return a configuration's names, with those of MCP tools. Raise ValueError if one of its tools is unavailable."""
    from orga.activities.adapters.agents.agents import with_default_agent
    from orga.activities.adapters.agents.offered_tools import LISTED_TOOLS, delegate_tool
    from orga.activities.adapters.policy.cedar_names import PolicyVocabulary
    from orga.client.workers.tool_sources import available_tools

    root = (config.tools.files.root or Path.cwd()).resolve()
    async with available_tools(config, root, os.environ, write_note) as tools:
        specs = [each.tool.spec for each in tools]
    names = [spec.name for spec in specs]
    agents = with_default_agent(config.agents)
    specs += [delegate_tool(()), *LISTED_TOOLS]
    if any(agent.decisions for agent in agents.values()):
        specs.append(ToolSpec(name=tool_needing("decisions")))
    prefixes = [f"{server}_" for server in config.mcp.servers]
    unseen_prefixes = [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)]
    return PolicyVocabulary(
        tools={spec.name: spec for spec in specs},
        agents=frozenset(agents),
        unseen=tuple(f"{prefix}*" for prefix in unseen_prefixes),
    )


def _with_tests(vocabulary: "PolicyVocabulary", folder: Path) -> "PolicyVocabulary":
    """Add the names in a folder's tests to the vocabulary. Raise ConfigError if a file of tests cannot be used."""
    from orga.activities.adapters.policy.cedar_names import PolicyVocabulary
    from orga.client.policies.cases import case_files, read_cases

    files = [read_cases(path) for path in case_files(folder)] if any(folder.glob("**/*.test.toml")) else []
    tools = {name: tool for file in files for name, tool in file.tools.items()}
    cases = [case for file in files for case in file.test]
    runs = [case for case in cases if case.tool and loop_tool(case.tool).is_run]
    delegates = {name for case in runs if isinstance(name := case.arguments.get("agent"), str)}
    described = {
        name: ToolSpec(name=name, parameters=tool.parameters, options=ToolOptions(tags=tool.tags))
        for name, tool in tools.items()
    }
    agents = vocabulary.agents | delegates | {case.agent for case in cases}
    return PolicyVocabulary({**described, **vocabulary.tools}, agents, vocabulary.unseen)


app = typer.Typer(
    no_args_is_help=True,
    epilog="The rules are Cedar files, by default in policies/ next to orga.toml. The guide is docs/policies.md.",
    rich_markup_mode="rich",
)


def schema() -> None:
    """Print the Cedar schema: everything that a policy can refer to.

    Example: orga policy schema > policies/orga.cedarschema
    """
    from orga.activities.adapters.policy.cedar_types import SCHEMA

    write_document(SCHEMA.rstrip())


app.command("check")(check)
app.command("test")(explain.run_tests)
app.command("explain", cls=LastRunCommand)(explain.explain)
app.command("schema")(schema)
