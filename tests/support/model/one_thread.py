"""The engine of the small model on one thread: its spinning threads would be starved by other tests."""

import importlib
from collections.abc import Generator
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    """Give the engine one thread. With one per core it takes ten times as long on a busy machine."""
    engine: Any = importlib.import_module("xllamacpp")
    params: Any = engine.CommonParams

    def frugal() -> Any:
        made = params()
        made.cpuparams.n_threads = made.cpuparams_batch.n_threads = 1
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "CommonParams", frugal)
        yield
