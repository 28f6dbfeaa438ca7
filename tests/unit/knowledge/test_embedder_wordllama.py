"""The small local embeddings work offline, are repeatable, and follow meaning more than letters."""

import socket
from math import isclose

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder, WordLlamaEmbedder
from orga.activities.knowledge.vectors import cosine


async def test_texts_with_the_same_meaning_are_near_without_common_letters() -> None:
    texts = ["restart the server", "reboot the machine", "a cake with cherries"]
    true, letters = await WordLlamaEmbedder().embed(texts), await HashingEmbedder().embed(texts)
    assert cosine(true[0], true[1]) > 0.3 > 0.15 > cosine(true[0], true[2])
    assert cosine(true[0], true[1]) > cosine(letters[0], letters[1])


async def test_vectors_have_length_1_and_do_not_depend_on_the_batch() -> None:
    embedder = WordLlamaEmbedder()
    alone = await embedder.embed(["restart the server"])
    beside = await embedder.embed(["x " * 500, "restart the server"])
    assert alone[0] == beside[1]
    assert len(alone[0]) == embedder.dimensions == 256
    assert isclose(sum(value * value for value in alone[0]), 1)


async def test_an_empty_text_has_a_zero_vector() -> None:
    embedder = WordLlamaEmbedder()
    assert set((await embedder.embed([""]))[0]) == {0.0}
    assert await embedder.embed([]) == []


async def test_embedding_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refused)
    assert await WordLlamaEmbedder().embed(["a"])


def test_the_name_contains_the_version_of_the_weights() -> None:
    assert WordLlamaEmbedder().name.startswith("wordllama-0.4")
