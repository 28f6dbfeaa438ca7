"""Fixtures for pytest. Each pytest run loads this file if orga is installed, so it imports nothing before first use."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orga.client.testing.environment import Environment
    from orga.client.testing.script import ScriptedModel


@pytest.fixture(scope="session")
def orga_environment() -> Generator["Environment"]:
    """A time-skipping environment (`orga.testing.environment()`), started once for all tests.

    It belongs to no event loop, so tests of pytest-asyncio and of anyio can share it.
    """
    from orga.client.testing.environment import environment

    yield from _entered_in_thread(environment)


@pytest.fixture(scope="session")
def orga_local_environment() -> Generator["Environment"]:
    """An environment with the server that `orga` uses, which skips no time. It is started once for all tests."""
    from functools import partial

    from orga.client.testing.environment import environment

    yield from _entered_in_thread(partial(environment, time_skipping=False))


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Generator[Callable[..., "ScriptedModel"]]:
    """Makes models as `orga.testing.scripted` does. A test passes only if it has used all steps of its scripts."""
    from orga.client.testing.script import ScriptedModel, scripted

    made: list[ScriptedModel] = []

    def make(*steps: Any, **options: Any) -> ScriptedModel:
        made.append(scripted(*steps, **options))
        return made[-1]

    failed = request.session.testsfailed
    yield make
    if request.session.testsfailed == failed:
        left = [f"{each.left} steps of a script were not asked for" for each in made if each.left]
        assert not left, "; ".join(left)


def _entered_in_thread(start: Callable[[], Any]) -> Generator["Environment"]:
    """Enter and leave a context in a thread and an event loop of its own."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        runner = thread.submit(asyncio.Runner).result()
        context = start()
        try:
            yield thread.submit(runner.run, context.__aenter__()).result()
            thread.submit(runner.run, context.__aexit__(None, None, None)).result()
        finally:
            thread.submit(runner.close).result()
