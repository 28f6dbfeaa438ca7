"""Finds and reads `orga.toml`, applies the environment's settings, and refuses a file that needs trust and lacks it."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from orga.activities.adapters.toml_text import TomlTooDeep, read_toml
from orga.client.config.environment import Setting, bare_sections, merge_settings, settings
from orga.client.config.policy import with_policy_folder
from orga.client.config.problems import problem_lines
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.check import (
    TrustRequest,
    Untrusted,
    file_trust_request,
    letter_case_risks,
    policies_risk,
    policies_trust_request,
    require_owner,
    trusts_all,
    user_settings,
)
from orga.client.config.trust.risks import Risk, UserSettings, risks
from orga.client.errors import ConfigError
from orga.client.server.home import user_path
from orga.workflows.types.json_text import as_object

FILE_NAME = "orga.toml"
VARIABLE = "ORGA_CONFIG"
NO_FILE = Path(os.devnull)
"""Selects no file: the defaults hold, even if the folder has an `orga.toml`."""

PATH_KEYS = (
    ("tools", "files", "root"),
    ("tools", "manifests"),
    ("policy", "dir"),
    ("policy", "opa", "wasm"),
    ("audit", "signing_key_file"),
    ("knowledge", "path"),
)
"""Keys whose relative paths are resolved against the file's own folder."""


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line of the key at `path`, else of the nearest enclosing table, else of the first key inside."""
    lines = _key_lines(text)
    enclosing = [line for line in lines if path[: len(line.key)] == line.key]
    if enclosing:
        return max(enclosing, key=lambda line: len(line.key)).number
    return next((line.number for line in lines if line.key[: len(path)] == path), None)


class _KeyLine(NamedTuple):
    """A line that opens a table or sets a key."""

    number: int
    key: tuple[str, ...]
    """The whole path of the table or key."""


@lru_cache(maxsize=1)
def _key_lines(text: str) -> list[_KeyLine]:
    lines: list[_KeyLine] = []
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("[") and (header := _single_path(line)):
            table = header
            lines.append(_KeyLine(number, table))
            continue
        name, equals, _ = line.partition("=")
        if equals and (key := _single_path(f"{name} = 0")):
            lines.append(_KeyLine(number, (*table, *key)))
    return lines


def _single_path(toml: str) -> tuple[str, ...] | None:
    """Return the only path that this piece of TOML opens, or None if it does not open exactly one."""
    try:
        table: Any = read_toml(toml)
    except ValueError:
        return None
    path: list[str] = []
    while isinstance(table, dict) and len(cast("dict[str, Any]", table)) == 1:
        name, table = next(iter(cast("dict[str, Any]", table).items()))
        path.append(name)
    return tuple(path) or None


def load_config(
    named: Path | None = None,
    *,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    named_by: str = "--config",
) -> OrgaConfig:
    """Return the configuration that holds in `folder`, by default the working directory.

    The file is `named`, else the one in `ORGA_CONFIG`, else the first `orga.toml` from `folder` upwards. Without a
    file, the defaults hold. `NO_FILE` selects the defaults. Errors mention `named_by` as the source of `named`.

    Raises:
        ConfigError: The file has problems. The text names file, line and key of each, and what is allowed.
        Untrusted: A ConfigError: the file asks for more than reading, and nobody has trusted it. Naming a file with
            `--config` or `ORGA_CONFIG` does not trust it.
    """
    inputs = read_config(named, folder=folder, env=env, named_by=named_by)
    if not trusts_all(inputs.env):
        request = inputs.trust_request()
        if request and request.risks and not request.is_trusted:
            _refuse_misspelt(inputs)
            raise Untrusted(request)
    return inputs.config


def _refuse_misspelt(inputs: "ConfigInputs") -> None:
    """Raise ConfigError for misspelt tools, before the trust question, because a corrected file needs new trust."""
    from orga.client.config.known_input import misspelt_tools  # this import loads the tools

    lines = [
        f"{inputs.origin(('agents', agent, 'tools'))}: {problem}"
        for agent, problems in misspelt_tools(inputs.config).items()
        for problem in problems
    ]
    if lines:
        raise ConfigError("\n".join(lines))


@dataclass(frozen=True)
class ConfigInputs:
    """A file, if there is one, and the environment, whose settings override it. Reading them needs no trust."""

    env: Mapping[str, str]
    overrides: list[Setting]
    base: Path
    """The folder of the file. Without a file, the folder that the caller asked about."""
    path: Path | None = None
    text: str = ""
    file: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The tables of the file, with absolute paths."""
    hidden: Path | None = None
    """The file in a folder above that would hold if this one did not exist."""

    @cached_property
    def config(self) -> OrgaConfig:
        """The configuration. Trust is not checked here. An invalid configuration raises ConfigError."""
        if bare := bare_sections(self.env):
            raise ConfigError("\n".join(f"{name}: sets nothing; name a key, as in {name}__KEY" for name in bare))
        try:
            return with_policy_folder(self._validated(), self.base).with_file(self.path)
        except ValidationError as error:
            raise ConfigError("\n".join(problem_lines(error, OrgaConfig, self._problem_source))) from None

    def _validated(self) -> OrgaConfig:
        return OrgaConfig.model_validate(merge_settings(self.file, self.overrides), extra="forbid")

    def _problem_source(self, key: tuple[str, ...]) -> str:
        """Return the variable, or the file and line, that has the problem with the key."""
        for setting in self.overrides:
            shared = min(len(key), len(setting.path))  # a variable may set a key above this one, or one below it
            if setting.path[:shared] == key[:shared]:
                return setting.variable
        return self._place(key)

    def _place(self, key: tuple[str, ...]) -> str:
        line = line_of(self.text, key)
        return f"{self.path}:{line}" if line else str(self.path)

    def origin(self, key: tuple[str, ...]) -> str | None:
        """Return the variable, or the file and line, that sets the key, or None if nothing sets it."""
        for setting in self.overrides:
            if key[: len(setting.path)] == setting.path:
                return setting.variable
        table: Any = self.file
        for name in key:
            if not isinstance(table, dict) or name not in table:
                return None
            table = cast("dict[str, Any]", table)[name]
        return self._place(key)

    def trust_request(self) -> TrustRequest | None:
        """Return the trust request of the file. Without a file: of a policy folder that needs trust, or None."""
        user = user_settings(self.overrides, self.env)
        policies = self._policies_risk(user)
        if self.path is None:
            return policies_trust_request(Path(policies.value), policies) if policies else None
        found = [*risks(self.file, self.base, user), *letter_case_risks(self.overrides)]
        if policies:
            found.append(policies)
        if self.hidden is not None:
            why = "no longer holds here, because this file replaces it"
            found.append(Risk((FILE_NAME,), str(self.hidden), why=why))
        try:
            config = OrgaConfig.model_validate(self.file, extra="forbid")
        except ValidationError:  # the file may be valid only with the user's variables
            config = self.config
        return file_trust_request(self.path, self.text, config, found)

    def _policies_risk(self, user: UserSettings) -> Risk | None:
        """Return the risk of a policy folder that the configuration does not name."""
        try:
            config = self._validated()
        except ValidationError:
            return None  # an invalid configuration is never used
        if config.policy.dir is not None or config.policy.engine not in {None, "cedar"}:
            return None
        folder = with_policy_folder(config, self.base).policy.dir
        return policies_risk(folder, user) if folder else None


def read_config(
    named: Path | None = None,
    *,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    named_by: str = "--config",
) -> ConfigInputs:
    """Return what `load_config` makes the configuration of. The arguments are the same."""
    folder, env = folder or Path.cwd(), os.environ if env is None else env
    path = _find_config(named, folder, env, named_by)
    if path is None:
        return ConfigInputs(env, settings(env, {}), folder)
    is_named = bool(named or env.get(VARIABLE))
    require_owner(path, env, named=is_named)
    text = _read_text(path)
    file = _parse_file(text, path)
    hidden = None if is_named else config_above(path)
    return ConfigInputs(env, settings(env, file), path.parent, path, text, file, hidden)


def _find_config(named: Path | None, folder: Path, env: Mapping[str, str], named_by: str) -> Path | None:
    """Return the named file, else the nearest one, or None. Raise ConfigError if a named file does not exist."""
    source, chosen = (named_by, named) if named else (VARIABLE, env.get(VARIABLE))
    if not chosen:
        return nearest_config(folder)
    if Path(chosen) == NO_FILE:
        return None
    path = folder / user_path(chosen)
    if not path.is_file():
        raise ConfigError(f"{source} names {chosen}, which is no file; correct the path or leave it out")
    return path.absolute()


def nearest_config(folder: Path) -> Path | None:
    """Return the first `orga.toml` from `folder` upwards, or None. Raise ConfigError if it is a folder."""
    folder = folder.absolute()
    return _first_config([folder, *folder.parents])


def config_above(path: Path) -> Path | None:
    """Return the `orga.toml` that would hold in the folder of `path` if `path` did not exist, or None."""
    return _first_config(path.absolute().parents[1:])


def _first_config(folders: Iterable[Path]) -> Path | None:
    paths = (folder / FILE_NAME for folder in folders)
    found = next((path for path in paths if path.is_file() or path.is_dir()), None)
    if found is not None and found.is_dir():
        raise ConfigError(f"{found}: is a folder, and a configuration is a file; rename it, or name a file (--config)")
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows editors may write a byte order mark
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def _parse_file(text: str, path: Path) -> dict[str, Any]:
    try:
        return _with_absolute_paths(read_toml(text), path.parent)
    except TomlTooDeep as error:
        raise ConfigError(f"{path}: {error}; write them flatter") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _with_absolute_paths(file: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the file's relative paths against its own folder."""
    for *above, key in PATH_KEYS:
        table: Any = file
        for name in above:
            table = as_object(table).get(name)
        if isinstance(table, dict) and key in table:
            table[key] = _absolute_path(folder, cast("dict[str, Any]", table)[key])
    for server in as_object(as_object(file.get("mcp")).get("servers")).values():
        if isinstance(server, dict) and "command" in server:
            server["cwd"] = _absolute_path(folder, cast("dict[str, Any]", server).get("cwd", "."))
    return file


def _absolute_path(folder: Path, path: Any) -> Any:
    """Return a path, or each path of a list, as absolute. Validation rejects other values later."""
    if isinstance(path, list):
        return [_absolute_path(folder, each) for each in cast("list[Any]", path)]
    return str(folder / user_path(path)) if isinstance(path, str) else path
