"""Where the Python functions of a configuration are, so far as they are not installed."""

from pathlib import Path

from orga.client.config.sections import OrgaConfig
from orga.own_code import set_aside


def tool_folders(config: OrgaConfig) -> list[Path]:
    """Return the file's own folder, the working directory without a file, and what was taken off `sys.path`."""
    return [config.file.parent if config.file else Path.cwd(), *set_aside]
