"""The engine of the small model on one thread: threads that wait for one another by spinning starve beside tests."""

import importlib
from collections.abc import Generator
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    """Let it have one, not as many as there are cores: where others want them, those take ten times as long."""
    engine: Any = importlib.import_module("xllamacpp")
    params: Any = engine.CommonParams

    def frugal() -> Any:
        made = params()
        made.cpuparams.n_threads = made.cpuparams_batch.n_threads = 1
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "CommonParams", frugal)
        yield
