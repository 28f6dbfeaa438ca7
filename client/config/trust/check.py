"""Whether a configuration may be used: harmless, or trusted by a person as it stands."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.file_owner import foreign
from orga.client.config.trust.risks import Risk, risks
from orga.client.config.trust.store import own_name, trusted_digests
from orga.client.errors import ConfigError
from orga.workflows.types.text import as_line

VARIABLE = "ORGA_TRUST"
"""`1` trusts every configuration: for automation, where whoever sets the environment has chosen the folder, too."""


@dataclass(frozen=True)
class Asked:
    """What a file asks trust for, as it stands."""

    path: Path
    risks: tuple[Risk, ...]
    digest: str
    """Of the file and of all files by which it makes something run."""

    @property
    def is_trusted(self) -> bool:
        """Whether a person has trusted exactly this."""
        return trusted_digests().get(own_name(self.path)) == self.digest


class Untrusted(ConfigError):
    """A configuration that nobody has trusted as it stands."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        changed = " as it stands now" if own_name(asked.path) in trusted_digests() else ""
        lines = [f"{as_line(str(asked.path))} is not trusted{changed}. It", *(f"  {risk}" for risk in asked.risks)]
        super().__init__("\n".join([*lines, f"if you want that: orga trust {as_line(quote(str(asked.path)))}"]))


def require_trust(asked: Asked, env: Mapping[str, str]) -> None:
    """Let a configuration pass that is harmless, or trusted.

    Raises:
        Untrusted: It is neither.
    """
    if asked.risks and env.get(VARIABLE) != "1" and not asked.is_trusted:
        raise Untrusted(asked)


def require_owner(path: Path, env: Mapping[str, str], *, named: bool) -> None:
    """Refuse what others have written, or can; but for a file that the command and the environment both vouch for.

    Raises:
        ConfigError: With whose it is.
    """
    problem = None if named and env.get(VARIABLE) == "1" else foreign(path, os.geteuid())
    if problem:
        remedy = f"take it over (chown, chmod o-w), or name it with --config and set {VARIABLE}=1"
        raise ConfigError(f"{path}: is not used, since {problem}; {remedy}")


def asked_by(path: Path, text: str, file: Mapping[str, Any], config: OrgaConfig) -> Asked:
    """Return what a file asks for; `file` are its tables with paths made absolute, `config` is what they mean."""
    found = tuple(risks(file, path.parent))
    return Asked(path, found, _digest(path, text, config) if found else "")


def _digest(path: Path, text: str, config: OrgaConfig) -> str:
    from orga.client.config.trust.rules_in_use import user_code  # half a second of imports, for configurations that ask

    whole = {own_name(path): _sha256(text.encode())}
    root, compiled = config.tools.files.root, config.policy.opa.wasm
    found = [
        file
        for place in ((root,) if root else (path.parent, Path.cwd()))
        for file in user_code(config.of_file(path), place).existing()
    ]
    for file in [*found, *((compiled,) if compiled and compiled.is_file() else ())]:
        whole[str(file.resolve())] = _sha256(file.read_bytes())
    return f"sha256:{_sha256(json.dumps(whole, sort_keys=True).encode())}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
