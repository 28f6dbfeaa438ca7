"""`orga trust`: which configurations may run code, use keys and widen what agents may do."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import Json
from orga.client.cli.shown.text import json_result, note, result
from orga.client.config.file import FILE_NAME, asked_config
from orga.client.config.policy_folder import FOLDER
from orga.client.config.trust.check import Asked, Untrusted
from orga.client.config.trust.store import forget, remember, trusted_digests


def trust(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A configuration or its folder; else the first one upwards from here."),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust it no longer.")] = False,
    json: Json = False,
) -> int:
    """Trust a configuration as it stands: it may then run code, use your keys, and widen what agents may do.

    It shows what asks for that. Whatever changes later, in the file or in the code it names, is asked about anew.

    Example: orga trust
    """
    if list_:
        return _listed(as_json=json)
    if revoke:
        return _revoked(path, as_json=json)
    asked = _asked(path)
    for risk in asked.risks:
        note(f"  {risk}")
    if asked.risks:
        remember(asked.path, asked.digest)
    if json:
        json_result(
            {"path": str(asked.path), "trusted": bool(asked.risks), "asks": [str(risk) for risk in asked.risks]}
        )
    else:
        result(f"trusted as it stands: {asked.path}" if asked.risks else f"{asked.path} needs no trust")
    return 0


def is_trusted_now(error: Untrusted) -> bool:
    """Ask the person at the terminal; nobody is asked where none is."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note(*str(error).splitlines()[:-1])
    if not typer.confirm("Trust it as it stands?", default=False, err=True):
        return False
    remember(error.asked.path, error.asked.digest)
    return True


def _asked(path: Path | None) -> Asked:
    file, folder = _named(path), Path.cwd()
    if file is not None and file.name == FOLDER and file.is_dir():
        file, folder = None, folder / file.parent
    if file is not None and not file.is_file():
        raise UsageError(f"{file} is no file; name a configuration, or the folder of an orga.toml")
    asked = asked_config(file, folder=folder, env=os.environ)
    if asked is None:
        raise UsageError("there is no orga.toml here or above, and no policies that ask for trust; name a file")
    return asked


def _named(path: Path | None) -> Path | None:
    """Return the file that a path means: that of a folder, if it is not a folder of policies without one."""
    if path is None or not path.is_dir() or (path.name == FOLDER and not (path / FILE_NAME).exists()):
        return path
    return path / FILE_NAME


def _revoked(path: Path | None, *, as_json: bool) -> int:
    named = _named(path) or _asked(None).path
    was = forget(Path.cwd() / named)
    if as_json:
        json_result({"path": str(named), "trusted": False, "was_trusted": was})
    else:
        result(f"{named} is not trusted {'any more' if was else 'anyway'}")
    return 0


def _listed(*, as_json: bool) -> int:
    known = trusted_digests()
    if as_json:
        json_result(known)
    for path, digest in () if as_json else known.items():
        result(f"{path}  {digest}")
    return 0
