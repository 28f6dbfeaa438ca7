"""The mark under an answer: whoever reads it knows how small the model is that wrote it."""

MARK = "\n\nlocal:smollm2: a very small language model, often wrong; check what it says"
STOPPED = "; it got nowhere with its tools and was stopped"


def marked(*, was_stopped: bool) -> str:
    """Return what stands under an answer."""
    return MARK + STOPPED if was_stopped else MARK


def unmarked(text: str) -> str:
    """Return an answer without its mark, which the model would imitate."""
    return text.partition(MARK)[0]
