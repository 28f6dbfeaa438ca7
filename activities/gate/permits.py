"""Signs allowed calls, and checks the signature before a call runs. Only workers have the key."""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.calls.activity import current_run_key
from orga.workflows.types.tool_calls.gate import MAC_CHARS, NOT_PERMITTED, PERMIT_KEY, call_activity_id
from orga.workflows.types.tool_calls.tools import NOT_DONE, Caller, ToolRequest

MIN_KEY_CHARS = 32


@dataclass(frozen=True)
class ActivityIdentity:
    """The identity of a call: an activity id within one segment of a run."""

    namespace: str
    workflow_id: str
    run_id: str
    activity_id: str


class SignedCall(NamedTuple):
    """The parts of a call that a permit binds."""

    tool: str
    arguments: Mapping[str, Any]
    caller: Caller | None = None
    """None if the tool does not take it."""


class PermitKeys:
    """The keys of a worker. The first key signs. Signatures of all keys are valid, so runs survive a change of keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Raise ValueError if there is no key, or a key is short enough to be guessed."""
        if not keys or any(len(key) < MIN_KEY_CHARS for key in keys):
            needs = f"each key needs {MIN_KEY_CHARS} characters or more"
            raise ValueError(f"{PERMIT_KEY}: {needs}; make one with: openssl rand -hex 32")
        self.texts = tuple(keys)
        self._keys = [key.encode() for key in keys]

    def sign(self, identity: ActivityIdentity, call: SignedCall, terms: str) -> str:
        """Return the signature of a call under these `permit_terms`."""
        return _signature(self._keys[0], identity, call, terms)

    def is_valid(self, permit: str, identity: ActivityIdentity, call: SignedCall) -> bool:
        """Return whether the permit was signed for exactly this call."""
        signature, terms = permit[:MAC_CHARS].encode(), permit[MAC_CHARS:]
        valid = [_signature(key, identity, call, terms).encode() for key in self._keys]
        return any(hmac.compare_digest(signature, other) for other in valid)


def permit_keys(env: Mapping[str, str]) -> PermitKeys | None:
    """Return the keys of `ORGA_PERMIT_KEY`: `A,B`, or `@FILE` with one per line. None if unset, ValueError if bad."""
    value = env.get(PERMIT_KEY, "").strip()
    if not value:
        return None
    if not value.startswith("@"):
        return PermitKeys([key.strip() for key in value.split(",") if key.strip()])
    try:
        lines = Path(value[1:]).read_text().splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{PERMIT_KEY}: the file that it names cannot be read: {type(error).__name__}") from None
    return PermitKeys([line.strip() for line in lines if line.strip()])


def check_permit(keys: PermitKeys | None, request: ToolRequest) -> None:
    """Raise ApplicationError (NotPermitted) if a call lacks the gate's permit for exactly this call."""
    info = activity.info()
    identity = current_activity_identity(info.activity_id)
    call = SignedCall(info.activity_type, request.arguments, request.caller)
    if keys is None or keys.is_valid(request.permit, identity, call):
        return
    text = "[Denied] this call has no valid permit of the gate; nothing was run"
    raise ApplicationError(text, NOT_DONE, type=NOT_PERMITTED, non_retryable=True)


def current_activity_identity(activity_id: str) -> ActivityIdentity:
    run = current_run_key()
    return ActivityIdentity(activity.info().namespace, run.workflow_id, run.run_id, call_activity_id(activity_id))


def _signature(key: bytes, identity: ActivityIdentity, call: SignedCall, terms: str) -> str:
    ids = [identity.namespace, identity.workflow_id, identity.run_id, identity.activity_id]
    signed = ["orga permit 1", *ids, call.tool, _json_digest(call.arguments), terms]
    if call.caller is not None:
        signed.append(_json_digest(call.caller.model_dump(mode="json")))
    mac = hmac.new(key, json.dumps(signed).encode(), sha256).digest()[:16]  # 128 bits: `MAC_CHARS` characters
    return urlsafe_b64encode(mac).decode().rstrip("=")


def _json_digest(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
