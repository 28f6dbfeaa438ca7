"""`orga trust`: let configurations run code, use keys and widen what agents may do."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.config.file import FILE_NAME, config_trust_request
from orga.client.config.policy_folder import FOLDER
from orga.client.config.trust.check import TrustRequest, Untrusted, revoke_trust, trust_digest, trusted_digests


def trust(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A configuration or its folder. Default: the nearest one here or above."),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show the trusted configurations.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Do not trust it any more.")] = False,
    json: Json = False,
) -> int:
    """The command shows the settings that need trust. After a change of the file, or of code that it names, you are
    asked again.

    Example: orga trust
    """
    if list_:
        return _show_trusted(as_json=json)
    if revoke:
        return _revoke_trust(path, as_json=json)
    asked = _find_config(path)
    for risk in asked.risks:
        write_note(f"  {risk}")
    if asked.risks:
        trust_digest(asked.path, asked.digest)
    if json:
        write_json({"path": str(asked.path), "trusted": bool(asked.risks), "asks": [str(risk) for risk in asked.risks]})
    else:
        write_result(f"trusted as it is now: {asked.path}" if asked.risks else f"{asked.path} needs no trust")
    return 0


def ask_for_trust(error: Untrusted) -> bool:
    """Ask the person at the terminal whether to trust, and return the answer; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    write_note(*str(error).splitlines()[:-1])
    if not typer.confirm("Trust it as it is now?", default=False, err=True):
        return False
    trust_digest(error.asked.path, error.asked.digest)
    return True


def _find_config(path: Path | None) -> TrustRequest:
    file, folder = _config_path(path), Path.cwd()
    if file is not None and file.name == FOLDER and file.is_dir():
        file, folder = None, folder / file.parent
    if file is not None and not file.is_file():
        raise UsageError(f"{file}: is not a file. Name a configuration, or the folder of an orga.toml")
    asked = config_trust_request(file, folder=folder, env=os.environ)
    if asked is None:
        raise UsageError("there is no orga.toml here or above, and no policies that need trust. Name a file")
    return asked


def _config_path(path: Path | None) -> Path | None:
    """Return the file that a path means. A folder means its orga.toml, but a policy folder without one means itself."""
    if path is None or not path.is_dir() or (path.name == FOLDER and not (path / FILE_NAME).exists()):
        return path
    return path / FILE_NAME


def _revoke_trust(path: Path | None, *, as_json: bool) -> int:
    named = _config_path(path) or _find_config(None).path
    was = revoke_trust(Path.cwd() / named)
    if as_json:
        write_json({"path": str(named), "trusted": False, "was_trusted": was})
    else:
        write_result(f"{named} is not trusted {'any more' if was else 'anyway'}")
    return 0


def _show_trusted(*, as_json: bool) -> int:
    known = trusted_digests()
    if as_json:
        write_json(known)
    for path, digest in () if as_json else known.items():
        write_result(f"{path}  {digest}")
    return 0
