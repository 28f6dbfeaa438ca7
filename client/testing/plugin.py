"""The plugin of a worker under test: models are scripted, and some tools are fakes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from orga.client.workers.plugin import OrgaPlugin
from orga.client.workers.stand_ins import ModelsInPlace, StandIns, ToolInPlace


class PluginUnderTest(OrgaPlugin):
    """Adds agents to a worker as `OrgaPlugin` does, and asks and calls what stands in."""

    _shutdown_grace = timedelta(0)

    def __init__(self, models: ModelsInPlace, fakes: Sequence[ToolInPlace], **given: Any) -> None:
        super().__init__(**given)
        self._stand_ins = StandIns(models, fakes)
