"""Lessons from refusals of a model are kept in a file, for other workers and after a restart."""

import json
import time
from pathlib import Path

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models import dialect
from orga.activities.adapters.models.dialect import LESSON_S, MAX_KEPT_LESSONS, LessonFile, lesson_key
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.models.openai.chat_completions import OpenAIChat
from orga.activities.adapters.models.openai.responses_api import OpenAIResponses
from orga.activities.adapters.models.streaming import StreamingProvider
from orga.activities.adapters.models.wire import Wire
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings
from tests.support.model.providers import (
    KEY,
    a_request,
    chunk,
    message_item,
    response_events,
    stream_response,
)

URL = "https://models.test/v1"
REFUSAL = (
    "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is supported."
)


async def sent_temperatures(file: Path | None, url: str = URL, model: str = "m", **settings: object) -> list[bool]:
    """Ask the model from another worker. Return whether each request had a temperature: the model refuses it."""

    asked = list[bool]()

    def answered(request: http.Request) -> http.Response:
        asked.append("temperature" in json.loads(request.content))
        if asked[-1]:
            return http.Response(400, json={"error": {"message": REFUSAL}})
        return stream_response(chunk("stop", content="hi"))

    place = ProviderEndpoint(
        "openai", url, {"authorization": f"Bearer {KEY}"}, KEY, EndpointSettings.model_validate(settings)
    )
    kept = LessonFile(file) if file else None
    provider = StreamingProvider(place, OpenAIChat("openai"), http.MockTransport(answered), lessons=kept)
    request = a_request(model=model, settings=ModelSettings(temperature=0.3))
    await provider.complete(request, lambda piece: None)
    await provider.close()
    return asked


async def test_another_worker_has_learned_it_already(tmp_path: Path) -> None:
    file = tmp_path / "state" / "lessons.json"
    assert await sent_temperatures(file) == [True, False]
    assert await sent_temperatures(file) == [False]
    assert await sent_temperatures(None) == [True, False]
    assert await sent_temperatures(file, model="other") == [True, False]
    assert await sent_temperatures(file, url="https://elsewhere.test/v1") == [True, False]
    assert await sent_temperatures(file, lacks=("tools",)) == [True, False]


@pytest.mark.parametrize(
    ("wires", "refusal"),
    [
        ((OpenAIChat("openai"), OpenAIResponses("openai")), "m needs tools in another way. Use /v1/responses instead."),
        ((OpenAIResponses("openai"), OpenAIChat("openai")), "Not Found"),
        ((OpenAIChat("openai"), OpenAIResponses("openai")), "Not Found"),
    ],
)
async def test_the_protocol_of_a_model_is_learned_too(tmp_path: Path, wires: tuple[Wire, Wire], refusal: str) -> None:
    async def asked_paths(url: str = URL) -> list[str]:
        def answered(request: http.Request) -> http.Response:
            paths.append(request.url.path.removeprefix("/v1"))
            if paths[-1] == wires[0].path:
                return http.Response(404, json={"error": {"message": refusal}})
            return response if paths[-1] == "/responses" else stream_response(chunk("stop", content="hi"))

        paths = list[str]()
        response = stream_response(*response_events(message_item("hi")))
        provider = StreamingProvider(
            ProviderEndpoint("openai", url),
            wires[0],
            http.MockTransport(answered),
            other=wires[1],
            lessons=LessonFile(tmp_path / "lessons.json"),
        )
        await provider.complete(a_request(), lambda piece: None)
        await provider.close()
        return paths

    assert await asked_paths() == [wires[0].path, wires[1].path]
    assert await asked_paths() == [wires[1].path]
    assert await asked_paths("https://elsewhere.test/v1") == [wires[0].path, wires[1].path]


async def test_the_file_is_private_and_names_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lessons.json"
    await sent_temperatures(file, model="my-model")
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each for each in (KEY, "models.test", "my-model", "Unsupported") if each in text] == []
    assert list(tmp_path.iterdir()) == [file]


async def test_a_lesson_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lessons.json"
    await sent_temperatures(file)
    now = time.time()
    for passed, learns_again in ((LESSON_S - 60, False), (LESSON_S + 60, True), (-LESSON_S, True)):
        monkeypatch.setattr(dialect.time, "time", lambda at=now + passed: at)
        kept = file.read_bytes()
        assert (await sent_temperatures(file) == [True, False]) is learns_again
        file.write_bytes(kept)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"KEY": 1}', '{"KEY": {"until": "x"}}',
     '{"KEY": {"until": UNTIL, "dialect": {"refused": 1}}}',
     '{"KEY": {"until": UNTIL, "dialect": {"no_such_field": 1}}}', "[" * 100_000],
)  # fmt: skip
async def test_a_file_that_cannot_be_read_is_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lessons.json"
    await sent_temperatures(file)
    (key,) = json.loads(file.read_text())
    file.write_text(text.replace("KEY", key).replace("UNTIL", str(time.time() + 60)))
    assert await sent_temperatures(file) == [True, False]
    assert await sent_temperatures(file) == [False]


async def test_a_file_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "lessons.json"
    await sent_temperatures(file)
    file.chmod(0o620)
    assert await sent_temperatures(file) == [True, False]
    assert file.stat().st_mode & 0o777 == 0o600
    target = file.rename(tmp_path / "target")
    file.symlink_to(target)
    assert await sent_temperatures(file) == [True, False]
    assert not file.is_symlink()


async def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert await sent_temperatures(tmp_path / "taken" / "lessons.json") == [True, False]


def test_the_oldest_lessons_are_dropped(tmp_path: Path) -> None:
    file, usual = LessonFile(tmp_path / "lessons.json"), OpenAIChat("openai").dialect("m")
    keys = [lesson_key(URL, str(number), usual) for number in range(MAX_KEPT_LESSONS + 2)]
    for key in keys:
        file.keep(key, usual)
    assert [file.get(key) is None for key in (keys[0], keys[1], keys[2], keys[-1])] == [True, True, False, False]
    assert LessonFile(tmp_path / "lessons.json").get(keys[-1]) == usual
