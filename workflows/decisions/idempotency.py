"""The idempotency key of a tool call."""

from hashlib import sha256

from pydantic_core import to_json

from workflows.types.messages import ToolCall

KEY_CHARS = 32


def idempotency_key(origin: str, place: str, call: ToolCall) -> str:
    """Return a key that every attempt of exactly this call shares, and no other call has.

    `origin` survives reset and continue-as-new, `place` is `<iteration>.<index>`; the arguments are in it, so that a
    run that was rewound and proposes something else at the same place does not get the old effect.
    """
    arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
    identity = f"{origin}/{place}/{call.name}/{arguments}"
    return sha256(identity.encode()).hexdigest()[:KEY_CHARS]
