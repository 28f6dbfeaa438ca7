"""The OPA engine over HTTP: one POST for each proposal; without an answer everything is denied."""

import asyncio
import json
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from orga.activities.adapters import http
from orga.activities.adapters.decompressed import ACCEPTED_ENCODINGS
from orga.activities.adapters.policy.opa_answer import judgement, undefined
from orga.activities.adapters.policy.opa_input import opa_input
from orga.activities.adapters.tools.bounded_body import bounded_body
from orga.activities.error_text import error_text
from orga.activities.known_secrets import KnownSecrets
from orga.activities.ports import Judgement, Proposal, ToolError
from orga.workflows.types.json_text import each_once

ATTEMPTS = 3
MAX_ANSWER_BYTES = 1_000_000
PAUSE_S = 0.1
"""Before the second attempt; doubled before the third."""


class OpaUnreachable(Exception):
    """No answer that could be read, and another attempt may bring one."""


class OpaServer:
    """Asks `POST /v1/data/<path>` of a server."""

    is_embedded = False

    def __init__(
        self,
        url: str,
        path: str,
        *,
        token: str | None = None,
        timeout_s: float = 3.0,
        transport: http.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare requests; none is made yet.

        Args:
            url: Of the server, without `/v1`.
            path: Of the rule: `orga/decision` for `decision` of package `orga`.
            token: Sent as a bearer token.
            timeout_s: For all attempts at one decision together.
            transport: In place of the network.
        """
        self._url = f"{url.rstrip('/')}/v1/data/{path.strip('/')}"
        self._path = path
        self._timeout_s = timeout_s
        self._secrets = KnownSecrets.of([token or ""], least=1)
        headers = {"content-type": "application/json", "accept-encoding": ACCEPTED_ENCODINGS}
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        self._client = http.http_client(url, headers=headers, transport=transport, silence_s=timeout_s)

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision of the server."""
        try:
            body = to_json({"input": opa_input(proposal)}, inf_nan_mode="strings")
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer(body)
        except TimeoutError:
            return _denied(f"OPA was too slow: it gave no answer within {self._timeout_s:g} s")
        except PydanticSerializationError as error:
            return _denied(f"OPA cannot be asked about this: {error}")
        except OpaUnreachable as error:
            return _denied(f"OPA gave no answer in {ATTEMPTS} attempts: {error}")
        if not isinstance(answer, dict):
            return _denied("OPA gave an answer that is no JSON object")
        found = cast("dict[str, Any]", answer)
        version = _revision(found)
        return judgement(found["result"], version) if "result" in found else undefined(self._path, version)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _answer(self, body: bytes) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return await self._ask(body)
            except OpaUnreachable:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE_S * 2**attempt)
        return None

    async def _ask(self, body: bytes) -> Any:
        try:
            async with self._client.stream("POST", self._url, params={"provenance": "true"}, content=body) as response:
                if response.status_code in http.TRANSIENT:
                    raise OpaUnreachable(f"status {response.status_code}")
                if response.status_code != 200:
                    return _refusal(f"OPA refused the question: status {response.status_code}")
                content, is_cut = await bounded_body(response, MAX_ANSWER_BYTES)
        except ToolError as error:  # its encoding is none, or damaged
            raise OpaUnreachable(error_text(error)) from error
        except (http.TransportError, http.DecodingError) as error:
            raise OpaUnreachable(f"{type(error).__name__} {error_text(error)}".strip()) from error
        if is_cut:
            return _refusal(f"OPA gave an answer of more than {MAX_ANSWER_BYTES} bytes")
        try:
            said = self._secrets.hidden(content.decode())  # a policy can see its headers
            return json.loads(said, object_pairs_hook=each_once)
        except (ValueError, RecursionError):
            return None


def _refusal(reason: str) -> dict[str, Any]:
    return {"result": {"decision": "deny", "reason": reason}}


def _denied(reason: str) -> Judgement:
    return Judgement(allowed=False, reason=reason)


def _revision(answer: dict[str, Any]) -> str:
    """Return the revisions of the server's bundles, where it has any that are named."""
    match answer.get("provenance"):
        case {"bundles": dict(bundles)}:  # pyright: ignore[reportUnknownVariableType]
            found = [_revision_of(bundle) for bundle in cast("dict[str, Any]", bundles).values()]
            return ",".join(filter(None, found))
        case _:
            return ""


def _revision_of(bundle: Any) -> str:
    match bundle:
        case {"revision": str(revision)}:
            return revision
        case _:
            return ""
