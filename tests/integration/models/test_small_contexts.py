"""A run with a model of a small context shortens its conversation itself, before the server would cut it silently."""

import pytest

from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.programs.orga_command import an_orga

CONTEXT = 4_096

FILE = "".join(f"Line {number} of the list of rows.\n" for number in range(180))
"""About 1,700 tokens, so that two do not fit."""


@pytest.mark.timeout(180)
def test_ollama_gets_no_request_that_it_would_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("project")
    reads = [Calls("read_file", {"path": f"rows{number}.txt"}) for number in range(4)]
    for number in range(4):
        (folder / f"rows{number}.txt").write_text(FILE)
    (folder / "orga.toml").write_text(
        '[agents.default]\nmodel = "ollama:m"\ninstructions = "Read."\ntools = ["read_file"]\n'
    )
    orga = an_orga(folder, tmp_path_factory.mktemp("home"))
    with chat_server(*reads, Says(["All", " read."])) as chat:
        chat.ollama_context = CONTEXT
        orga.env.update(OLLAMA_HOST=f"127.0.0.1:{chat.port}", ORGA_TRUST="1")
        listed = orga("models", "--check")
        ran = orga("run", "Read the rows.", "--id", "r")
        doctor = orga("doctor")
        orga("server", "--stop")
    assert (ran.code, ran.out.strip()) == (0, "All read."), ran.err
    sizes = [sum(len(str(message["content"])) for message in body["messages"]) for body in chat.requests]
    assert max(sizes) / 3.3 < CONTEXT
    assert sum(map(len, [FILE] * 4)) / 3.3 > CONTEXT
    assert all(body["max_tokens"] <= CONTEXT for body in chat.requests)
    for shown in (listed.out, doctor.out):
        assert "Ollama serves the model with a context of 4,096 tokens of its 131,072" in shown, shown
        assert "OLLAMA_CONTEXT_LENGTH=65536" in shown
