"""Where policies are if the configuration names no folder."""

from pathlib import Path

from orga.client.config.sections import OrgaConfig

FOLDER = "policies"


def with_policy_folder(config: OrgaConfig, base: Path) -> OrgaConfig:
    """Return the config whose `policy.dir` is `policies` in `base`, where it names none and Cedar files are there."""
    folder = base.absolute() / FOLDER
    if config.policy.dir is not None or not (any(folder.glob("*.cedar")) or any(folder.glob("*/*.cedar"))):
        return config
    return config.with_policy(config.policy.with_dir(folder))
