"""The tools that the configuration of this folder gives to a worker."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.output import note
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig

if TYPE_CHECKING:
    from orga.client.workers.tools import WorkerTool


@dataclass(frozen=True)
class Here:
    """What a worker that starts here would have."""

    config: OrgaConfig
    tools: "list[WorkerTool]"


@asynccontextmanager
async def tools_here(config_file: Path | None, *, ignores_pins: bool = False) -> AsyncGenerator[Here]:
    """Yield them, ready to be called; where pins are ignored, with the definitions that servers give now.

    Raises:
        UsageError: They cannot be had; one line a problem.
    """
    from orga.client.workers.available_tools import available_tools

    config = load_config(config_file).config
    if ignores_pins:
        config = config.with_mcp(config.mcp.without_pins())
    root = (config.tools.files.root or Path.cwd()).resolve()
    async with AsyncExitStack() as opened:
        try:
            tools = await opened.enter_async_context(available_tools(config, root, os.environ, note))
        except ValueError as error:
            raise UsageError(str(error)) from None
        yield Here(config, tools)
