"""Embeddings of a provider: the request, the accepted responses, and errors without the key."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from math import isclose, sqrt
from typing import Any

import httpx
import pytest

from orga.activities.adapters.knowledge import embedders as provider
from orga.activities.adapters.knowledge.embedders import ProviderEmbedder, request_batches
from orga.activities.adapters.models.model_settings import provider_endpoint
from orga.activities.knowledge.ports import KnowledgeError
from orga.client.config.sections import ModelsConfig
from orga.client.workers.knowledge_store import configured_embedder
from tests.support.web.serving import serving

KEY = "sk-planted-key-0123456789"
Answer = Callable[[httpx.Request], httpx.Response]


def an_embedder(answer: Answer, name: str = "openai") -> ProviderEmbedder:
    place = provider_endpoint(name, {"OPENAI_API_KEY": KEY}, {})
    return ProviderEmbedder("small", place, httpx.MockTransport(answer))


def vectors(*values: list[float]) -> httpx.Response:
    data = [{"object": "embedding", "index": at, "embedding": value} for at, value in enumerate(values)]
    return httpx.Response(200, json={"object": "list", "data": data})


async def test_the_request_has_model_and_texts_and_vectors_have_length_1() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return vectors([3.0, 4.0], [0.0, 2.0])

    embedder = an_embedder(answer)
    assert embedder.dimensions == 0
    assert await embedder.embed(["one", ""]) == [[0.6, 0.8], [0.0, 1.0]]
    assert (embedder.name, embedder.dimensions) == ("openai:small", 2)
    assert str(seen[0].url) == "https://api.openai.com/v1/embeddings"
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(seen[0].content) == {"model": "small", "input": ["one", " "]}


async def test_vectors_are_matched_to_their_texts_by_index() -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    embedder = an_embedder(lambda _: httpx.Response(200, json={"data": data}))
    assert await embedder.embed(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]


async def test_many_texts_are_sent_in_several_requests_and_returned_in_order() -> None:
    sizes: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        sizes.append(len(texts))
        return vectors(*([1.0, float(text)] for text in texts))

    found = await an_embedder(answer).embed([str(at) for at in range(150)])
    assert sizes == [64, 64, 22]
    assert all(isclose(vector[1] / vector[0], at, abs_tol=1e-9) for at, vector in enumerate(found))
    assert all(isclose(sqrt(sum(value * value for value in vector)), 1) for vector in found)


def test_long_texts_are_cut_and_fill_a_batch_sooner() -> None:
    sent = list(request_batches(["x" * 50_000] * 7))
    assert [len(batch) for batch in sent] == [5, 2]
    assert {len(text) for batch in sent for text in batch} == {provider.MAX_TEXT_CHARS}


async def test_no_request_is_made_without_texts() -> None:
    assert await an_embedder(lambda _: httpx.Response(500)).embed([]) == []


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (401, "AuthenticationFailed", False),
        (404, "ModelNotFound", False),
        (429, "RateLimited", True),
        (500, "ServerError", True),
        (302, "InvalidRequest", False),
    ],
)
async def test_a_refusal_names_the_provider_and_the_remedy_without_the_key(
    status: int, kind: str, retryable: bool
) -> None:
    embedder = an_embedder(lambda _: httpx.Response(status, json={"error": {"message": f"no: {KEY}"}}))
    with pytest.raises(KnowledgeError, match=rf"answered {status}.*: no.*choose another \[knowledge\]") as caught:
        await embedder.embed(["a"])
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(b'{"data": []}', id="nothing"),
        pytest.param(b'{"data": [{"index": 0, "embedding": "AAAA"}]}', id="base64"),
        pytest.param(b'{"data": [{"index": 0, "embedding": [1, NaN]}]}', id="not a number"),
        pytest.param(b'{"data": [{"index": 0, "embedding": [1e999]}]}', id="too large a number"),
        pytest.param(b'{"data": [{"index": 0, "embedding": [true]}]}', id="a boolean"),
        pytest.param(b'{"data": [{"index": 0, "embedding": []}]}', id="an empty vector"),
        pytest.param(b'{"data": [{"index": 7, "embedding": [1]}]}', id="an unknown index"),
        pytest.param(b'{"data": [{"index": [], "embedding": [1]}]}', id="an invalid index"),
        pytest.param(b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}]}', id="too many"),
    ],
)
async def test_an_invalid_response_is_reported_as_broken(body: bytes) -> None:
    with pytest.raises(KnowledgeError, match="openai sent a broken reply") as caught:
        await an_embedder(lambda _: httpx.Response(200, content=body)).embed(["a"])
    assert caught.value.retryable


async def test_vectors_of_a_new_length_are_refused() -> None:
    answers = iter([vectors([1.0, 0.0]), vectors([1.0])])
    embedder = an_embedder(lambda _: next(answers))
    await embedder.embed(["a"])
    with pytest.raises(KnowledgeError, match="vectors of several lengths: 1, 2"):
        await embedder.embed(["b"])


async def test_a_response_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "MAX_ANSWER_BYTES", 1_000)
    with pytest.raises(KnowledgeError, match="more than 1,000 bytes"):
        await an_embedder(lambda _: httpx.Response(200, content=b" " * 5_000)).embed(["a"])


async def test_a_compressed_response_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "MAX_ANSWER_BYTES", 1_000_000)
    data = gzip.compress(b" " * 50_000_000)

    async def body() -> AsyncGenerator[bytes]:
        yield data

    response = httpx.Response(200, headers={"content-encoding": "gzip"}, content=body())
    tracemalloc.start()
    try:
        with pytest.raises(KnowledgeError, match="more than 1,000,000 bytes"):
            await an_embedder(lambda _: response).embed(["a"])
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


async def test_a_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "REQUEST_S", 0.2)

    async def answer(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(30)
        return httpx.Response(500)

    embedder = ProviderEmbedder("m", provider_endpoint("ollama", {}, {}), httpx.MockTransport(answer))
    with pytest.raises(KnowledgeError, match=r"no vectors within 0.2 s") as caught:
        await embedder.embed(["a"])
    assert (caught.value.kind, caught.value.retryable) == ("Timeout", True)


async def test_an_unreachable_server_is_reported_with_the_remedy() -> None:
    embedder = configured_embedder(
        "openai-compatible:m", {}, ModelsConfig(base_urls={"openai-compatible": "http://127.0.0.1:9/v1"})
    )
    with pytest.raises(KnowledgeError, match=r"openai-compatible can't be reached.*try again"):
        await embedder.embed(["a"])


async def test_a_real_server_gets_the_request_in_the_form_of_ollama() -> None:
    from http.server import BaseHTTPRequestHandler

    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, question))
            data = [{"index": at, "embedding": [float(at), 1.0]} for at, _ in enumerate(question["input"])]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with serving(Handler) as port:
        embedder = configured_embedder("ollama:nomic-embed-text", {"OLLAMA_HOST": f"127.0.0.1:{port}"}, ModelsConfig())
        found = await embedder.embed(["a", "b"])
    assert asked == [("/v1/embeddings", {"model": "nomic-embed-text", "input": ["a", "b"]})]
    assert [len(vector) for vector in found] == [2, 2]
