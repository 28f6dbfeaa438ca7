"""Words that mean nearly the same, by the vectors of `wordllama`.

They are read from its files: the first answer of a worker waits for them, and all of the package takes twice as long.
"""

import json
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orga.activities.knowledge.ports import KnowledgeError

NEAR = 0.57
"""Cosine from which two words mean nearly the same: `film` and `movie` have 0.84, `halt` and `stop` 0.61."""

_WHOLE = re.compile("▁[a-z]{3,}")
"""Tokens that are whole words."""

_LOOKED_AT = 16
_TOKENS = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")


def near_words(word: str) -> tuple[str, ...]:
    """Return the words of its vocabulary that are nearest to a word of it, nearest first; none for any other word.

    Raises:
        KnowledgeError: The package is there without its weights.
    """
    tokens, vectors = vocabulary()
    if f"▁{word}" not in tokens:
        return ()
    place = tokens[f"▁{word}"]
    likeness: list[float] = (vectors @ vectors[place]).tolist()
    order = sorted(range(len(likeness)), key=lambda one: -likeness[one])[:_LOOKED_AT]
    nearest = [one for one in order if likeness[one] >= NEAR and one != place]
    names = list(tokens)
    return tuple(names[one][1:] for one in nearest)


@cache
def vocabulary() -> tuple[dict[str, int], Any]:
    """Return its whole words by place, and their vectors of length 1.

    Raises:
        KnowledgeError: The package is there without its weights.
    """
    numbers, weights = _read()
    ids = dict(sorted((token, number) for token, number in numbers.items() if _WHOLE.fullmatch(token)))
    vectors = weights[list(ids.values())].astype("float32")
    vectors /= (vectors * vectors).sum(axis=1, keepdims=True) ** 0.5
    return {token: place for place, token in enumerate(ids)}, vectors


def _read() -> tuple[dict[str, int], Any]:
    """Return the number of each token, and the vectors by number."""
    safetensors: Any = import_module("safetensors")  # comes with the extra
    spec = find_spec("wordllama")
    folders = (spec.submodule_search_locations if spec else None) or [""]
    folder = Path(folders[0])
    try:
        tokens = json.loads((folder / _TOKENS).read_bytes())
        with safetensors.safe_open(folder / _WEIGHTS, framework="numpy") as file:
            return tokens["model"]["vocab"], file.get_tensor("embedding.weight")
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise unusable(error) from error


def unusable(error: Exception) -> KnowledgeError:
    """Return the error of a package without its weights."""
    return KnowledgeError(
        f"the weights of wordllama cannot be loaded ({error}); install it anew: "
        "pip install --force-reinstall 'orga[embeddings]'",
        kind="Unreachable",
    )
