"""The small true embeddings: offline, the same each time, and nearer to the meaning than the letters are."""

import socket
from math import isclose

import pytest

from orga.activities.adapters.knowledge.embedders.local import HashingEmbedder, WordLlamaEmbedder
from orga.activities.knowledge.vectors import cosine


async def test_what_means_the_same_is_near_without_a_letter_in_common() -> None:
    texts = ["restart the server", "reboot the machine", "a cake with cherries"]
    true, letters = await WordLlamaEmbedder().embed(texts), await HashingEmbedder().embed(texts)
    assert cosine(true[0], true[1]) > 0.3 > 0.15 > cosine(true[0], true[2])
    assert cosine(true[0], true[1]) > cosine(letters[0], letters[1])


async def test_vectors_have_length_1_and_are_the_same_beside_any_other() -> None:
    embedder = WordLlamaEmbedder()
    alone = await embedder.embed(["restart the server"])
    beside = await embedder.embed(["x " * 500, "restart the server"])
    assert alone[0] == beside[1]
    assert len(alone[0]) == embedder.dimensions == 256
    assert isclose(sum(value * value for value in alone[0]), 1)


async def test_an_empty_text_is_like_nothing_and_no_text_is_no_vector() -> None:
    embedder = WordLlamaEmbedder()
    assert set((await embedder.embed([""]))[0]) == {0.0}
    assert await embedder.embed([]) == []


async def test_nobody_is_asked_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refused)
    assert await WordLlamaEmbedder().embed(["a"])


def test_its_name_tells_whose_weights_they_are() -> None:
    assert WordLlamaEmbedder().name.startswith("wordllama-0.4")
