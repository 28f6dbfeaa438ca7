"""Which policies a command is about: a folder that is named, else those of the configuration."""

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
        metavar="NAME", help="Also the policies in this folder of DIR; else as \\[policy] says.", show_default=False
    ),
]


def chosen_policy_settings(
    folder: Path | None, surface: str | None, config: Path | None, env: dict[str, str]
) -> "PolicySettings":
    """Return the settings of the configuration, or those of a named folder.

    Raises:
        UsageError: The folder is none, or the surface is no plain name.
    """
    from orga.activities.adapters.policy.ladder import PolicySettings, engine_name
    from orga.client.config.policy_settings import policy_settings

    if surface is not None and (not surface.replace("-", "").replace("_", "").isalnum() or not surface.isascii()):
        raise UsageError(f"--surface: {surface!r} is no plain name")
    if folder is not None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder")
        return PolicySettings(engine="cedar", folder=folder, surface=surface)
    try:
        settings = policy_settings(load_config(config).config.policy, env)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if engine_name(settings) in {"default", "allow"}:
        raise UsageError("there are no policies; put *.cedar files into policies/ beside orga.toml, or name a folder")
    return settings if surface is None else replace(settings, surface=surface)


def build_policy_engine(settings: "PolicySettings") -> "PolicyEngine":
    """Return the engine.

    Raises:
        UsageError: It cannot be had; of Cedar files with every problem.
    """
    from orga.activities.adapters.policy.ladder import policy_engine

    try:
        return policy_engine(settings)
    except ValueError as error:
        raise UsageError(str(error)) from None
