"""The tools that a worker has of its own, and where each comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orga.activities.adapters.knowledge.recall_tool import RecallKnowledge
from orga.activities.adapters.knowledge.store_tool import StoreKnowledge
from orga.activities.adapters.manifests.build import manifest_tool, secret_variables
from orga.activities.adapters.mcp.settings import own_options
from orga.activities.adapters.rules import Rules
from orga.activities.adapters.tools.catalog import builtin_tools, with_options
from orga.activities.adapters.tools.github_api import GitHubSettings
from orga.activities.adapters.tools.python_function import load_function
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import Tool
from orga.client.config.manifests import ManifestFile, manifests_of
from orga.client.config.sections import OrgaConfig
from orga.client.config.tool_folders import tool_folders
from orga.client.config.trust.rules_in_use import rules_in_use

BUILT_IN = "built-in"
IN_CODE = "given in code"


@dataclass(frozen=True)
class WorkerTool:
    """A tool with its options."""

    tool: Tool
    source: str
    """`built-in`, an import path, the file of a manifest, or `given in code`."""
    digest: str = ""
    """Of the code of a Python function, with all modules that came with it."""


def worker_tools(
    config: OrgaConfig,
    root: Path,
    env: Mapping[str, str],
    store: KnowledgeStore | None = None,
    in_code: Sequence[Tool] = (),
    *,
    stand_ins: Sequence[Tool] = (),
) -> list[WorkerTool]:
    """Return the built-in tools, the functions and the manifests that the config names, with their options.

    With a `store` the tools that recall and store are among the built-in ones. Functions that an application gives in
    code stand beside them, and in a test the `stand_ins` whose names no tool has.

    Raises:
        ValueError: A function or a manifest that cannot be used, options for no tool.
    """
    wanted = config.tools
    rules = rules_in_use(config, root, env)
    github = GitHubSettings(wanted.github.base_url, wanted.github.repo, env.get("GITHUB_TOKEN"))
    builtin = builtin_tools(
        root,
        allow_hosts=wanted.web.allow_hosts,
        commands=wanted.commands.allow,
        sandbox=wanted.commands.sandbox,
        github=github,
        rules=rules,
    )
    if store is not None:
        builtin += [RecallKnowledge(store, root), StoreKnowledge(store)]
    found = [WorkerTool(tool, BUILT_IN) for tool in builtin]
    functions = [(load_function(path, tool_folders(config)), path) for path in wanted.python]
    found += [WorkerTool(function, path, function.code_digest) for function, path in functions]
    found += [WorkerTool(function, IN_CODE) for function in in_code]
    found += [WorkerTool(_of_manifest(file, config, root, env, rules), str(file.path)) for file in manifests_of(config)]
    known = {each.tool.spec.name for each in found}
    found += [WorkerTool(tool, IN_CODE) for tool in stand_ins if tool.spec.name not in known]
    options = own_options(wanted.options, config.mcp.servers, [each.tool.spec.name for each in found])
    tools = with_options([each.tool for each in found], options)
    return [replace(each, tool=tool) for tool, each in zip(tools, found, strict=True)]


def manifest_secrets(config: OrgaConfig) -> list[str]:
    """Return the variables of the environment that hold credentials, by the manifests that the config names."""
    return [name for file in manifests_of(config) for name in secret_variables(file.manifest)]


def _of_manifest(file: ManifestFile, config: OrgaConfig, root: Path, env: Mapping[str, str], rules: Rules) -> Tool:
    try:
        return manifest_tool(file.manifest, root, env, config.tools.web.allow_hosts, rules)
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from error
