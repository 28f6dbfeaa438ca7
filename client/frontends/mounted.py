"""Mounts the protocols of other front ends in the console: AG-UI, Responses, and the MCP server at `/mcp`.

Over `/mcp`, each visitor has the runs and rights that the visitor has in the console. `/mcp` keeps no session of the
protocol, so the console can be restarted between two calls. Its tool `decide`, for held calls, needs an option of the
console and an approver, because an assistant uses it with the approver's token. Otherwise people use the inbox.
"""

from functools import partial

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orga.activities.adapters.agents.agents import with_default_agent
from orga.client.config.sections import OrgaConfig
from orga.client.console.doors import Visitor
from orga.client.console.problems import Problem
from orga.client.console.routes import Adapter, Console, may_see
from orga.client.frontends.agui import agui_adapter
from orga.client.frontends.mcp_server import build_server
from orga.client.frontends.reach import Reach
from orga.client.frontends.responses import responses_adapter
from orga.client.frontends.threads import admit, open_stream, require_room
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.record import InvalidInput

_KEPT_SERVERS = 100  # one per visitor

_BY_THE_DOORS = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""No check, because the doors of the console have already checked the host and the origin."""


def mcp_adapter(*, may_decide: bool = False) -> Adapter:
    """Return the adapter. With `may_decide`, assistants of approvers decide held calls under the approver's name."""
    return Adapter("mcp", (Route("/mcp", _Endpoint(may_decide=may_decide), name="mcp"),))


class _Endpoint:
    """The ASGI application of `/mcp`. The doors have checked its requests."""

    def __init__(self, *, may_decide: bool) -> None:
        self._may_decide = may_decide
        self._servers: dict[Visitor, MCPServer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        console, visitor = admit(Request(scope), "viewer", is_write=False)
        server = self._servers.get(visitor)
        if server is None:
            server = self._servers[visitor] = _server_for(console, visitor, may_decide=self._may_decide)
        if len(self._servers) > _KEPT_SERVERS:
            del self._servers[next(iter(self._servers))]
        app = server.streamable_http_app(stateless_http=True, transport_security=_BY_THE_DOORS)
        require_room(console, visitor)
        with open_stream(console, visitor):
            async with app.router.lifespan_context(app):
                await app(scope, receive, send)


def _server_for(console: Console, visitor: Visitor, *, may_decide: bool) -> MCPServer:
    is_of_one_tenant = visitor.tenants is not None and len(visitor.tenants) == 1
    tenant = next(iter(visitor.tenants or ())) if is_of_one_tenant else None

    def count_write(*, is_start: bool = False) -> None:
        try:
            console.doors.count_write(visitor, is_start=is_start)
        except Problem as problem:
            raise InvalidInput(problem.detail) from None

    def check(given: AgentInput | GoalInput) -> None:
        console.check(given)
        if visitor.tenants is not None and tenant is None:
            raise InvalidInput("tenant: you have several. Start the run in the console, where you can choose one")
        count_write(is_start=True)

    may_write = visitor.may("operator") and not console.doors.read_only
    reach = Reach(
        console.client,
        by=visitor.name,
        runs_query="",
        has=partial(may_see, visitor),
        tenant=tenant,
        check=check,
        count_write=count_write,
        may_write=may_write,
    )
    return build_server(reach, may_decide=may_decide and visitor.may("approver"))


def mounted_adapters(config: OrgaConfig, *, may_decide: bool) -> tuple[Adapter, ...]:
    responses = responses_adapter(lambda: sorted(with_default_agent(config.agents)))
    return agui_adapter(), mcp_adapter(may_decide=may_decide), responses
