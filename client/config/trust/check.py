"""Decides whether a configuration may be used. It must be harmless, or the user must trust its present content."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, cast

from orga.client.config.environment import Setting
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.risks import WIDE, Key, Risk, UserSetting, UserSettings, reads_only
from orga.client.errors import ConfigError, ServerUnavailable
from orga.client.server.home import read_table, server_home, write_table
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS
from orga.workflows.types.text import escaped_line

VARIABLE = "ORGA_TRUST"
"""`1` trusts every configuration. It is for automation: whoever sets the environment there also chooses the folder."""

_VARIABLES = {"OPA_TOKEN": "policy", "ORGA_KNOWLEDGE_DSN": "knowledge", "ORGA_NOTIFY_SECRET": "notify"}
"""Variables that are not `ORGA_SECTION__KEY` settings, with the section that each belongs to."""


def trust_key(path: Path) -> str:
    """Return a file's key in the trust record. A link keeps its own path: other files lie next to its target."""
    return str(path.parent.resolve() / path.name)


def trusted_digests() -> dict[str, str]:
    """Return the trusted digests by path. A damaged record raises UnreadableTable, and nothing counts as trusted."""
    return read_table(server_home().trust)


def trust_digest(path: Path, digest: str) -> None:
    write_table(server_home().trust, trusted_digests() | {trust_key(path): digest})


def revoke_trust(path: Path) -> bool:
    """Stop trusting a file. Return whether it was trusted."""
    digests = trusted_digests()
    removed = digests.pop(trust_key(path), None)
    write_table(server_home().trust, digests)
    return removed is not None


def ownership_problem(path: Path, user: int) -> str | None:
    """Return why somebody other than `user` and root may have written a file or its folder, or None."""
    target = path.resolve()
    for checked in dict.fromkeys((path, target, path.parent.resolve(), target.parent)):
        status = checked.lstat()
        if status.st_uid not in (user, 0):
            return f"{checked} belongs to another user ({status.st_uid})"
        if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
            return f"{checked} can be written by every user"
    return None


@dataclass(frozen=True)
class TrustRequest:
    """The question whether the user trusts a configuration's present content."""

    path: Path
    risks: tuple[Risk, ...]
    _digest: Callable[[], str]

    @cached_property
    def digest(self) -> str:
        """The digest of the file and of all code that it makes run. It is computed on first use, because it is slow."""
        return self._digest()

    @property
    def is_trusted(self) -> bool:
        """True if a person has trusted exactly this content."""
        return trusted_digests().get(trust_key(self.path)) == self.digest


class Untrusted(ConfigError):
    """The configuration needs trust, and nobody has trusted its present content."""

    def __init__(self, request: TrustRequest) -> None:
        self.request = request
        changed = " in its present form" if trust_key(request.path) in trusted_digests() else ""
        lines = [
            f"{escaped_line(str(request.path))} is not trusted{changed}. It",
            *(f"  {risk}" for risk in request.risks),
        ]
        super().__init__("\n".join([*lines, f"if you want that: orga trust {escaped_line(quote(str(request.path)))}"]))


def trusts_all(env: Mapping[str, str]) -> bool:
    return env.get(VARIABLE) == "1"


def require_owner(path: Path, env: Mapping[str, str], *, named: bool) -> None:
    """Raise ConfigError for a file that others may have written, unless it is named and `ORGA_TRUST` is 1."""
    if named and trusts_all(env):
        return
    if problem := ownership_problem(path, os.geteuid()):
        remedy = f"take it over (chown, chmod o-w), or name it with --config and set {VARIABLE}=1"
        raise ConfigError(f"{path}: is not used, since {problem}; {remedy}")


def file_trust_request(path: Path, text: str, config: OrgaConfig, risks: Sequence[Risk]) -> TrustRequest:
    """Return a file's trust request. `config` names the code that the digest includes."""
    return TrustRequest(path, tuple(risks), lambda: _digest(path, text, config))


def policies_risk(folder: Path, user: UserSettings) -> Risk | None:
    """Return the risk of a policy folder that no file names, or None if it replaces no setting of the user."""
    if user.server:
        return Risk(("policies",), str(folder), user.server, why="judges runs of other users of that server")
    if setting := user.variable_for(["policy"]):
        return Risk(("policies",), str(folder), setting, why="decides instead of the policy that you have set")
    return None


def policies_trust_request(folder: Path, risk: Risk) -> TrustRequest:
    """Return the trust request of a policy folder that no file names. Its content may change without new trust."""
    return TrustRequest(folder, (risk,), lambda: f"sha256:{_sha256(trust_key(folder).encode())}")


def user_settings(settings: Sequence[Setting], env: Mapping[str, str]) -> UserSettings:
    """Return the user's own settings: `ORGA_SECTION__KEY` variables, and other variables that affect a section."""
    found: list[UserSetting] = []
    for setting in settings:
        for key, value in _leaf_values(setting.path, setting.value):
            found.append(UserSetting(key, setting.variable))
            is_agents_tools = key[0] == "agents" and key[2:] == ("tools",)
            if is_agents_tools and not reads_only(value):
                found.append(UserSetting(WIDE, setting.variable))
    model_variables = [name for provider in DEFAULT_PROVIDERS for name in (provider.model, provider.base_url)]
    variables = _VARIABLES | dict.fromkeys(model_variables, "models")
    found += [UserSetting((section,), name) for name, section in variables.items() if env.get(name)]
    found += [UserSetting(("telemetry",), name) for name in sorted(env) if name.startswith("OTEL_")]
    return UserSettings(found, _server_source(found, env))


def letter_case_risks(settings: Sequence[Setting]) -> list[Risk]:
    """Return the risks of capital letters in a file's names: `Clerk` gets what the user's variables set for `clerk`."""
    why = "takes the setting that you have made for the name in lower case"
    return [
        Risk(setting.path, setting.value, setting.variable, why=why)
        for setting in settings
        if any(part != part.lower() for part in setting.path)
    ]


def _leaf_values(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _leaf_values((*key, name), inner)
    else:
        yield key, value


def _server_source(settings: Sequence[UserSetting], env: Mapping[str, str]) -> str:
    """Return the variable or profile by which the user has named a Temporal server, or ""."""
    for setting in settings:
        if setting.key == ("temporal", "address"):
            return setting.variable
    if env.get("TEMPORAL_ADDRESS"):
        return "TEMPORAL_ADDRESS"
    from orga.client.server.resolve import standard_address  # this import loads Temporal's client

    try:
        return "Temporal's profile" if standard_address(env) else ""
    except ServerUnavailable:  # a profile that cannot be read
        return "Temporal's profile"


def _digest(path: Path, text: str, config: OrgaConfig) -> str:
    from orga.client.config.trust.rules_in_use import user_code  # this import takes half a second

    digests = {trust_key(path): _sha256(text.encode())}
    root, compiled_policy = config.tools.files.root, config.policy.opa.wasm
    roots = (root,) if root else (path.parent, Path.cwd())
    files = [file for folder in roots for file in user_code(config.with_file(path), folder).existing_files()]
    if compiled_policy and compiled_policy.is_file():
        files.append(compiled_policy)
    for file in files:
        digests[str(file.resolve())] = _sha256(file.read_bytes())
    return f"sha256:{_sha256(json.dumps(digests, sort_keys=True).encode())}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
