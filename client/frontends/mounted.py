"""The protocols of other front ends that the console serves."""

from orga.activities.adapters.agents.agents import with_default_agent
from orga.client.config.sections import OrgaConfig
from orga.client.console.routes import Adapter
from orga.client.frontends.agui import agui_adapter
from orga.client.frontends.mcp_mount import mcp_adapter
from orga.client.frontends.responses import responses_adapter


def mounted_adapters(config: OrgaConfig, *, may_decide: bool) -> tuple[Adapter, ...]:
    responses = responses_adapter(lambda: sorted(with_default_agent(config.agents)))
    return agui_adapter(), mcp_adapter(may_decide=may_decide), responses
