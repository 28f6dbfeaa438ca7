"""Finding and reading `orga.toml`; the environment's `ORGA_SECTION__KEY` settings win over it."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from client.config import OrgaConfig
from client.config_environment import Setting, bare_sections, merged, settings
from client.config_problems import Place, explained
from client.errors import OrgaError
from client.policy_folder import with_policy_folder
from client.toml_lines import line_of

FILE_NAME = "orga.toml"
VARIABLE = "ORGA_CONFIG"

PATHS = (
    ("tools", "files", "root"),
    ("tools", "manifests"),
    ("policy", "dir"),
    ("policy", "opa", "wasm"),
    ("audit", "signing_key_file"),
)
"""Keys whose relative paths start at the file's own folder."""


class ConfigError(OrgaError):
    """A configuration that cannot be used: one line a problem."""


@dataclass(frozen=True)
class LoadedConfig:
    """The configuration and the file that it came from, if there is one."""

    config: OrgaConfig
    path: Path | None = None


def load_config(
    named: Path | None = None, *, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Return the configuration that holds in `folder`, the working directory unless given.

    Order of the file: `named`, then `ORGA_CONFIG`, then the first `orga.toml` from `folder` upwards. None is fine.

    Raises:
        ConfigError: Naming file, line and key of each problem, and what is allowed there.
    """
    env = os.environ if env is None else env
    folder = folder or Path.cwd()
    path = find_config(named, folder, env)
    text = _read(path) if path else ""
    file = _parsed(text, path) if path else {}
    if bare := bare_sections(env):
        raise ConfigError("\n".join(f"{name}: sets nothing; name a key, as in {name}__KEY" for name in bare))
    found = settings(env, file)
    try:
        config = OrgaConfig.model_validate(merged(file, found), extra="forbid")
    except ValidationError as error:
        raise ConfigError("\n".join(explained(error, OrgaConfig, _places(path, text, found)))) from None
    return LoadedConfig(with_policy_folder(config, path.parent if path else folder), path)


def find_config(named: Path | None, folder: Path, env: Mapping[str, str]) -> Path | None:
    """Return the file, or None when there is none.

    Raises:
        ConfigError: A file that is named does not exist.
    """
    chosen = named or (Path(env[VARIABLE]) if env.get(VARIABLE) else None)
    if chosen is None:
        folders = (folder.absolute(), *folder.absolute().parents)
        return next((there / FILE_NAME for there in folders if (there / FILE_NAME).is_file()), None)
    path = folder / chosen.expanduser()
    if not path.is_file():
        by = "--config" if named else VARIABLE
        raise ConfigError(f"{by} names {chosen}, which is no file; correct the path or leave it out")
    return path.absolute()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; TOML files are saved as UTF-8") from None


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return _rooted(tomllib.loads(text), path.parent)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _rooted(file: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the file's relative paths against its own folder."""
    for *above, key in PATHS:
        table: Any = file
        for name in above:
            table = cast("dict[str, Any]", table).get(name) if isinstance(table, dict) else None
        if isinstance(table, dict) and key in table:
            table[key] = _placed(folder, cast("dict[str, Any]", table)[key])
    return file


def _placed(folder: Path, path: Any) -> Any:
    """Return a path, or each of a list; what is no text is told later."""
    if isinstance(path, list):
        return [_placed(folder, each) for each in cast("list[Any]", path)]
    return str(folder / Path(path).expanduser()) if isinstance(path, str) else path


def _places(path: Path | None, text: str, found: list[Setting]) -> Place:
    def place(key: tuple[str, ...]) -> str:
        for setting in found:
            shared = min(len(key), len(setting.path))
            if setting.path[:shared] == key[:shared]:
                return setting.variable
        line = line_of(text, key)
        return f"{path}:{line}" if line else str(path)

    return place
