"""Choose the policies of a command: those of a named folder, or else of the configuration."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.config.file import load_config

if TYPE_CHECKING:
    from orga.activities.adapters.policy.ladder import PolicySettings
    from orga.activities.ports import PolicyEngine

Surface = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Also use the policies in this folder of DIR. Default: as in \\[policy].",
        show_default=False,
    ),
]


def chosen_policy_settings(
    folder: Path | None, surface: str | None, config: Path | None, env: dict[str, str]
) -> "PolicySettings":
    """Return the settings for a folder, or the configuration's. Raise UsageError if there are no such policies."""
    from orga.activities.adapters.policy.ladder import engine_name
    from orga.client.config.policy_settings import policy_settings
    from orga.client.config.sections import PolicyConfig

    if surface is not None and (not surface.replace("-", "").replace("_", "").isalnum() or not surface.isascii()):
        raise UsageError(f"--surface {surface!r}: use only letters, digits, - and _")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    try:
        policy = PolicyConfig(engine="cedar", dir=folder) if folder is not None else load_config(config).config.policy
        settings = policy_settings(policy, env)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if engine_name(settings) in {"default", "allow"}:
        raise UsageError("there are no policies. Put *.cedar files into policies/ next to orga.toml, or name a folder")
    return settings if surface is None else replace(settings, surface=surface)


def build_policy_engine(settings: "PolicySettings") -> "PolicyEngine":
    """Return the engine. Raise UsageError, for Cedar files with every problem, if it cannot be built."""
    from orga.activities.adapters.policy.ladder import policy_engine

    try:
        return policy_engine(settings)
    except ValueError as error:
        raise UsageError(str(error)) from None
