"""The small true embeddings: offline, the same each time, and nearer to the meaning than the letters are."""

import socket
from importlib.machinery import ModuleSpec
from math import isclose
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.embedders import near_words as read_words
from orga.activities.adapters.knowledge.embedders.hashing import HashingEmbedder
from orga.activities.adapters.knowledge.embedders.near_words import near_words, vocabulary
from orga.activities.adapters.knowledge.embedders.wordllama import WordLlamaEmbedder, loaded
from orga.activities.adapters.models.reader.synonyms import near
from orga.activities.knowledge.ports import KnowledgeError
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


def test_the_words_that_are_read_from_its_files_are_those_of_the_package() -> None:
    tokens, vectors = vocabulary()
    package = loaded()
    its_own = package.embedding[[package.tokenizer.token_to_id(token) for token in tokens]]
    assert len(tokens) > 8_000
    assert (vectors == its_own / (its_own * its_own).sum(axis=1, keepdims=True) ** 0.5).all()


def test_near_words_mean_nearly_the_same() -> None:
    assert "movie" in near_words("film")
    assert near_words("qwrtz") == ()


@pytest.mark.parametrize("weights", [None, b"", b"\x08"], ids=["no file", "an empty one", "a cut one"])
def test_without_its_weights_no_word_is_near(
    weights: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offline reader then finds a word and its forms only, as it does without the extra."""
    tokens = tmp_path / "tokenizers" / "l2_supercat_tokenizer_config.json"
    tokens.parent.mkdir()
    tokens.write_text('{"model": {"vocab": {}}}')
    if weights is not None:
        (tmp_path / "weights").mkdir()
        (tmp_path / "weights" / "l2_supercat_256.safetensors").write_bytes(weights)
    spec = ModuleSpec("wordllama", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]

    def found(_: str) -> ModuleSpec:
        return spec

    monkeypatch.setattr(read_words, "find_spec", found)
    monkeypatch.setattr(read_words, "vocabulary", vocabulary.__wrapped__)
    with pytest.raises(KnowledgeError, match="the weights of wordllama cannot be loaded"):
        near_words("film")
    assert near.__wrapped__("film") == ()
