"""Refuses a configuration that no worker could start with, before one is started."""

from collections.abc import Mapping
from pathlib import Path

from orga.client.config.policy_settings import policy_settings
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError


def require_usable(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> None:
    """Refuse a root of file tools that is no folder, and policies that cannot be compiled.

    Raises:
        ConfigError: Naming the place and the remedy.
    """
    from orga.activities.adapters.tools.root import files_root  # only who begins a worker asks

    try:
        files_root(root)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    policy = config.policy
    if policy.engine == "cedar" or policy.dir or policy.opa.wasm:
        from orga.activities.adapters.policy.ladder import policy_engine  # with the compilers of all engines

        try:
            policy_engine(policy_settings(policy, env))
        except ValueError as error:
            raise ConfigError(str(error)) from None
