"""`orga tools check`: every problem of the manifests, each with its place and remedy."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.activities.adapters.problem import Problem
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.config.file import load_config

if TYPE_CHECKING:
    from orga.client.config.manifests import ManifestFile, Problem


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Manifests; else those of \\[tools] manifests.", show_default=False),
    ] = None,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Read manifests of tools: every problem with file, line and remedy. Exit code 1 when there is one.

    Nothing is run, and the environment is not looked at: a variable that a tool needs may be set elsewhere.

    Example: orga tools check tools/count_words.toml
    """
    from orga.client.config.manifests import manifest_paths, read_manifests

    paths = manifest_paths(map(str, files) if files else load_config(config).config.tools.manifests)
    if not paths:
        raise UsageError(
            'there are no manifests; write one: orga tools new NAME, and [tools] manifests = ["tools/*.toml"]'
        )
    good, problems = read_manifests(paths)
    if json:
        shown = [_json(file) for file in good]
        json_result({"ok": not problems, "tools": shown, "problems": [asdict(problem) for problem in problems]})
    else:
        result(*map(_line, good), *chain.from_iterable(map(_problem_lines, problems)))
    note(f"{len(problems)} to mend: a worker refuses to start with one" if problems else f"tools: {len(good)}")
    return ExitCode.FAULTY if problems else 0


def _json(file: "ManifestFile") -> dict[str, Any]:
    from orga.activities.adapters.manifests.build import manifest_spec

    spec = manifest_spec(file.manifest)
    return {"name": spec.name, "file": str(file.path), "effect": spec.effect, "parameters": spec.parameters}


def _line(file: "ManifestFile") -> str:
    manifest = file.manifest
    kind = "command" if manifest.command else "request"
    asks = ", with approval" if manifest.approval else ""
    return f"✓ {manifest.name}: {manifest.effect} {kind}{asks} ({file.path})"


def _problem_lines(problem: "Problem") -> list[str]:
    return [f"✗ {problem.place}: {problem.problem}", f"    → {problem.remedy}"]
