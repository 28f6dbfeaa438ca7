"""Tools from manifests written by a test."""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from orga.activities.adapters.manifests.argument_types import PathContext, Values, checked_values
from orga.activities.adapters.manifests.flaws import manifest_flaws
from orga.activities.adapters.manifests.manifest import Argument, Manifest
from orga.activities.adapters.manifests.tool import manifest_tool
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import Tool
from orga.client.config.manifests import read_manifests

HEAD = 'name = "it"\ndescription = "It."\n'
"""The first lines of every manifest."""


def problems(text: str) -> list[str]:
    """Return the faults of a manifest that is written into the working folder, each with its place."""
    Path("it.toml").write_text(text)
    return [str(problem) for problem in read_manifests([Path("it.toml")])[1]]


def a_manifest(text: str) -> Manifest:
    """Return a manifest without flaws; name and description may be left out."""
    head = "" if text.lstrip().startswith("name") else 'name = "tool"\ndescription = "A tool."\n'
    manifest = Manifest.model_validate(tomllib.loads(head + text), extra="forbid")
    assert list(manifest_flaws(manifest)) == []
    return manifest


def a_manifest_tool(
    root: Path, text: str, env: Mapping[str, str] | None = None, allow_hosts: Collection[str] = ()
) -> Tool:
    """Return the tool of such a manifest."""
    return manifest_tool(a_manifest(text), root, env or {}, allow_hosts)


def read(root: Path, declared: str, value: object) -> Values:
    """Return the result for an argument `x`, declared by an inline table."""
    argument = Argument.model_validate(tomllib.loads(f"x = {{ {declared} }}")["x"], extra="forbid")
    return checked_values({"x": value}, {"x": argument}, PathContext(FileRoot(root)))
