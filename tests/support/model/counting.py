"""A model that counts tokens like the estimate, summarises on request, and may have its own context size."""

from collections.abc import Callable

from orga.activities.ports import ModelError, ModelRequest
from orga.testing import ScriptedModel
from orga.workflows.decisions.conversation import estimated_message_tokens, frame_tokens
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.setup import Setup


def estimate(request: ModelRequest) -> int:
    """Return the tokens of a request as the run estimates them."""
    setup = Setup(agent="", model="", instructions="".join(request.system), tools=request.tools)
    return frame_tokens(setup) + estimated_message_tokens(request.messages)


def counting(
    step: Callable[[ModelRequest, int], Reply],
    summary: Callable[[ModelRequest, int], Reply] | None = None,
    *,
    factor: float = 1.0,
    window: int = 10**9,
) -> "CountingProvider":
    """Return a model whose nth step is `step(request, n)` and whose nth summary is `summary(request, n)`."""
    return CountingProvider(step, summary or (lambda request, n: Reply.of(f"summary {n}")), factor, window)


class CountingProvider(ScriptedModel):
    """Distinguishes steps from summaries, and keeps the requests for each."""

    def __init__(
        self,
        step: Callable[[ModelRequest, int], Reply],
        summary: Callable[[ModelRequest, int], Reply],
        factor: float,
        window: int,
    ) -> None:
        """Count `factor` times the estimate, and accept at most `window` of that."""
        super().__init__([self._reply], repeats=True)
        self._step, self._summary = step, summary
        self._factor, self._window = factor, window
        self.steps: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.refused: list[ModelRequest] = []

    def _reply(self, request: ModelRequest) -> Reply:
        counted = round(estimate(request) * self._factor)
        if counted > self._window:
            self.refused.append(request)
            raise ModelError("ContextOverflow", f"{counted} tokens, at most {self._window}", retryable=False)
        asked, answer = (self.summaries, self._summary) if request.tool_choice == "none" else (self.steps, self._step)
        asked.append(request)
        reply = answer(request, len(asked))
        return reply.model_copy(update={"usage": Usage(input_tokens=counted, output_tokens=10)})
