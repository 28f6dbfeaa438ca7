"""All requests that schemathesis makes up. `make test` sends a few of them."""

from pathlib import Path

from temporalio.client import Client

from tests.support.interface import check_interface


async def test_schemathesis_finds_nothing(client: Client, tmp_path: Path) -> None:
    await check_interface(client, tmp_path, phases="coverage,fuzzing", examples=40)
