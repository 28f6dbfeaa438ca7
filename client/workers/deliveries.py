"""The channels of a worker for the answers of goals."""

from collections.abc import Mapping
from pathlib import Path

from orga.activities.adapters.tools.root import Root
from orga.activities.deliver import DeliveryChannel
from orga.activities.knowledge.ports import KnowledgeStore
from orga.client.config.delivery_settings import delivery_channels
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.workers.knowledge import configured_store


def configured_deliveries(
    config: OrgaConfig, root: Path, env: Mapping[str, str], store: KnowledgeStore | None = None
) -> dict[str, DeliveryChannel]:
    """Return the channels that the config names; files are written under the limits of the file tools.

    Args:
        config: As it was read.
        root: Of the file tools.
        env: Holds the secrets of channels.
        store: That of the worker; the configured one without.

    Raises:
        ValueError: One cannot be used; the text names it.
    """
    return delivery_channels(
        config.goals.deliveries,
        lambda: Root(root, rules_in_use(config, root, env)),
        lambda: store or configured_store(config, env, root),
        env,
    )
