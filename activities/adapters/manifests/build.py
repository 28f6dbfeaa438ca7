"""Builds the tool of a manifest that has no flaws."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from orga.activities.adapters.caller_secrets import is_by_caller
from orga.activities.adapters.manifests.argument_types import parameters_schema
from orga.activities.adapters.manifests.command_tool import CommandTool
from orga.activities.adapters.manifests.http_tool import HttpTool
from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.manifests.template import ManifestSecrets, header_secrets
from orga.activities.adapters.rules import NO_RULES, Rules
from orga.activities.adapters.tools.guarded_http import PublicBackend
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import Tool
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec

ENDING_GRACE_S = 5.0
"""Seconds after a call's own time limit, in which it is ended and can report that."""


def manifest_tool(
    manifest: Manifest, root: Path, env: Mapping[str, str], allow_hosts: Collection[str] = (), rules: Rules = NO_RULES
) -> Tool:
    """Return the tool. Raise ValueError if it lacks a variable, a folder or isolation."""
    spec = manifest_spec(manifest)
    if manifest.command is not None:
        return CommandTool(
            manifest, spec, FileRoot(root, rules), ManifestSecrets.from_environment(manifest.command.env_from, env)
        )
    secrets = ManifestSecrets.from_environment(sorted(header_secrets(manifest.http)) if manifest.http else (), env)
    return HttpTool(manifest, spec, FileRoot(root), secrets, PublicBackend(allow_hosts))


def secret_variables(manifest: Manifest) -> list[str]:
    """Return the variables that certainly hold credentials by their use. Variables for a program may be anything."""
    secrets = header_secrets(manifest.http) if manifest.http else ()
    return sorted(name for name in secrets if not is_by_caller(name))


def manifest_spec(manifest: Manifest) -> ToolSpec:
    """Return the definition for models. Defaults stay unset, because all set fields are written to histories."""
    marks: dict[str, Any] = {"tags": manifest.tags, "verified": manifest.verified, "approval": manifest.approval}
    own = {name: value for name, value in marks.items() if value}
    given = {name: getattr(manifest.options, name) for name in manifest.options.model_fields_set}
    secrets = header_secrets(manifest.http) if manifest.http else ()
    required = [name for name, argument in manifest.arguments.items() if argument.is_required]
    spec = ToolSpec(
        name=manifest.name,
        description=manifest.description,
        parameters=parameters_schema(manifest.arguments),
        effect=manifest.effect,
        options=ToolOptions.model_validate({**given, **own, "timeout_s": manifest.timeout_s + ENDING_GRACE_S}),
        main_argument=next(iter([*required, *manifest.arguments]), None),
    )
    output = manifest.output
    is_value = output.strict and output.parser == "json"
    return spec.with_takes_caller(any(map(is_by_caller, secrets))).with_output_schema(
        output.json_schema if is_value else None
    )
