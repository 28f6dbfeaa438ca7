"""The interface is as its OpenAPI document says."""

import json
import re
from pathlib import Path

from temporalio.client import Client

from orga.client.console.app import ROUTES
from tests.support.console import a_console
from tests.support.interface import check_interface


async def test_every_route_is_in_the_document_and_every_reference_leads_somewhere(client: Client) -> None:
    async with a_console(client) as console:
        document = await console.get("/openapi.json")
        found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert found == {(route.method, f"/api/v1{route.path}") for route in ROUTES}
        references = re.findall(r'"\$ref": "#/(\S+)/(\w+)"', json.dumps(document))
        assert {place for place, _ in references} == {"components/schemas"}
        assert {name for _, name in references} <= document["components"]["schemas"].keys()


async def test_answers_to_good_and_bad_requests_are_as_documented(client: Client, tmp_path: Path) -> None:
    await check_interface(client, tmp_path, phases="fuzzing", examples=5)
