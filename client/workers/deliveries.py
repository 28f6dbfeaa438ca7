"""The channels of a worker for the answers of goals."""

from collections.abc import Mapping
from pathlib import Path

from orga.activities.adapters.tools.root import Root
from orga.activities.deliver import DeliveryChannel
from orga.client.config.delivery_settings import delivery_channels
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import rules_in_use


def configured_deliveries(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> dict[str, DeliveryChannel]:
    """Return the channels that the config names; files are written under the limits of the file tools.

    Raises:
        ValueError: One cannot be used; the text names it.
    """
    return delivery_channels(config.goals.deliveries, lambda: Root(root, rules_in_use(config, root, env)), env)
