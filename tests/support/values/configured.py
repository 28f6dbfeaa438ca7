"""Configurations of a folder, and the error of a mistake in one."""

from pathlib import Path

import pytest

from orga.client.config.file import load_config
from orga.client.errors import ConfigError


def config_error_at(folder: Path, toml: str, line: int) -> str:
    """Return the error of an unusable configuration, and assert that it names the file and the line."""
    (folder / "orga.toml").write_text(toml)
    with pytest.raises(ConfigError) as raised:
        load_config(folder=folder, env={})
    reported, place = str(raised.value), f"{folder / 'orga.toml'}:{line}: "
    assert reported.startswith(place)
    return reported.removeprefix(place)
