"""The console's problems in the form of OpenAI's errors."""

import json
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orga.client.console.problems import MEDIA_TYPE


class OpenAIErrors:
    """ASGI middleware that gives problems on `/v1` the form of OpenAI's errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        begun: Message | None = None

        async def send_translated(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = message
                if (b"content-type", MEDIA_TYPE.encode()) in message["headers"]:
                    return
            elif begun is not None and (b"content-type", MEDIA_TYPE.encode()) in begun["headers"]:
                await _error_response(json.loads(message["body"]), begun)(scope, receive, send)
                return
            await send(message)

        await self._app(scope, receive, send_translated)


_CODES = {
    (401, ""): "invalid_api_key",
    (404, "model"): "model_not_found",
    (404, ""): "not_found",
    (429, ""): "rate_limit_exceeded",
}


def _error_response(problem: dict[str, Any], begun: Message) -> Response:
    status, detail = 400 if problem["status"] == 422 else problem["status"], problem["detail"]
    if detail.startswith("agent: there is no"):
        status, detail = 404, detail.replace("agent", "model", 1)
    where = detail.partition(":")[0]
    error = {
        "message": detail,
        "type": "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error",
        "param": where if where.isidentifier() else None,
        "code": _CODES.get((status, where)) or _CODES.get((status, "")),
    }
    kept = {name.decode(): value.decode() for name, value in begun["headers"] if name == b"retry-after"}
    if status != 429:  # the SDK would send a message again, with no id by which the second one could be recognised
        kept["x-should-retry"] = "false"
    return JSONResponse({"error": error}, status, headers=kept)
