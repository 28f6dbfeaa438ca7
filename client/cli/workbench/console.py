"""`orga console`: the web console."""

import getpass
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.inspect.keys import signing_key_file
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile
from orga.client.cli.session import cli_context
from orga.client.cli.shown.text import write_note, write_result
from orga.client.config.file import NO_FILE

DEFAULT_PORT = 8642


def console(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 takes any free one.")] = DEFAULT_PORT,
    config: ConfigFile = None,
) -> int:
    """Stopping it changes nothing about any run.

    Example: orga console
    """
    return run_interruptible(_serve(port, config))


async def _serve(port: int, config: Path | None) -> int:
    import uvicorn  # only this command needs the web server

    from orga.client.console.app import console_app
    from orga.client.console.doors import Doors
    from orga.client.console.routes import Console
    from orga.client.frontends.mounted import mounted_adapters

    async with cli_context(config) as here:
        doors = Doors(frozenset({f"127.0.0.1:{port}", f"localhost:{port}"}), getpass.getuser())
        key, adapters = signing_key_file(here.loaded.config.audit), mounted_adapters(here.loaded.config)
        app = console_app(Console(here.connection, doors, key, adapters, config_file=here.loaded.path or NO_FILE))
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", access_log=False))
        write_result(f"http://127.0.0.1:{port}/?token={doors.token}")
        write_note("Ctrl-C ends the console; runs go on")
        await server._serve()  # pyright: ignore[reportPrivateUsage] - `serve` would take Ctrl-C from this command
    return 0
