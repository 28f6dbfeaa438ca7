"""A message whose text is cut to the room that there is: what a tool said goes, what the loop says of it stays."""

from workflows.types.clipped import clip
from workflows.types.messages import Message

HINT = "there is no room for more in the context; ask for a smaller part"

MAX_LAST_LINE_CHARS = 200


def shortened(message: Message, max_bytes: int) -> Message:
    """Return the message with its text within `max_bytes` of UTF-8, as near as the loop's own words allow."""
    if len(message.text.encode()) <= max_bytes:
        return message
    head, tail = message.ours
    end = max(len(message.text) - tail, head)
    before, data, after = message.text[:head], message.text[head:end], message.text[end:]
    if not data or message.role == "user":
        text = _without_middle(message.text, max_bytes)
        ours = {"ours": (len(text), 0)} if head or tail else {}
        return message.model_copy(update={"text": text, **ours})
    room = max(max_bytes - len(before.encode()) - len(after.encode()), 0)
    return message.model_copy(update={"text": f"{before}{clip(data, room, HINT)}{after}"})


def _without_middle(text: str, max_bytes: int) -> str:
    """Keep the last line, which may be the end of a block that another agent wrote."""
    body, parted, last = text.rpartition("\n")
    if not parted or len(last) > MAX_LAST_LINE_CHARS:
        return clip(text, max_bytes, HINT)
    return f"{clip(body, max(max_bytes - len(last.encode()) - 1, 0), HINT)}\n{last}"
