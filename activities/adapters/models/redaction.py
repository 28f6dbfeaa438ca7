"""Error texts without secrets, on one line, cut."""

import re

from orga.activities.known_secrets import HIDDEN, KnownSecrets

MAX_ERROR_CHARS = 300
_SECRETS = re.compile(
    r"""(?ix)
    (?: (?:(?:proxy-)?authorization|x-api-key|api[-_]?key) ["']? \s*[:=]\s* ["']? (?:(?:bearer|basic)\s+)? [^\s"',}]+ )
    | (?: \b(?:bearer|basic) \s+ [\w\-.~+/=*]{4,} )
    | (?: \b(?:sk|pk|rk)-[\w\-*.]{4,} )
    | (?: (?<=://) [^/\s@]+ (?=@) )
    """
)


def redacted(text: str, secret: str = "") -> str:
    """Return `text` without `secret` and without whatever looks like a credential, in at most 300 characters."""
    text = KnownSecrets.of([secret], least=1).hidden(text)
    line = " ".join(_SECRETS.sub(HIDDEN, text).split())
    return line if len(line) <= MAX_ERROR_CHARS else line[: MAX_ERROR_CHARS - 1] + "…"
