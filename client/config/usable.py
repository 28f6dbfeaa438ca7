"""Refuses a configuration with which no worker could start, before one is started."""

from collections.abc import Mapping
from pathlib import Path

from orga.client.config.policy_settings import policy_settings
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError


def require_usable(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> None:
    """Refuse a root of the file tools that is not a folder, and policies that do not compile.

    Raises:
        ConfigError: The text names the place and the remedy.
    """
    from orga.activities.adapters.tools.root import files_root  # only a command that starts a worker needs this import

    try:
        files_root(root)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    policy = config.policy
    if policy.engine == "cedar" or policy.dir or policy.opa.wasm:
        from orga.activities.adapters.policy.ladder import policy_engine  # it loads the compilers of all engines

        try:
            policy_engine(policy_settings(policy, env))
        except ValueError as error:
            raise ConfigError(str(error)) from None
