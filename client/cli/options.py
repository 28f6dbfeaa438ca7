"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id; `orga list` shows them.", show_default=False)]

Json = Annotated[bool, typer.Option("--json", help="The result alone on stdout, as JSON; all else on stderr.")]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Use this orga.toml, not ORGA_CONFIG or the first one upwards from here.",
        show_default=False,
    ),
]

NoWorker = Annotated[
    bool, typer.Option("--no-worker", help="Start no worker here, even if none polls: the run waits for one.")
]
