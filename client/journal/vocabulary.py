"""The events of a journal: what each tells, and its data."""

from typing import NamedTuple


class Event(NamedTuple):
    """One event."""

    told: str
    data: str
    """Keys of its data; what is rare stands there only where there is something to say."""


EVENTS: dict[str, Event] = {
    "Started": Event("The run begins, or a fork goes on from another's past.", "task input forked_from"),
    "Prepared": Event(
        "What the run works with is settled: a worker has resolved agent, model, tools and policy.",
        "model instructions tools config policy policy_version build loop_version prompts",
    ),
    "PreHydrationComplete": Event(
        "What the task refers to was looked up before the first reasoning step.",
        "references_found references_resolved references_failed resolved failed unresolvable total_tokens references",
    ),
    "KnowledgeRecalled": Event(
        "What earlier runs have left was recalled, ahead of a step or by a tool.",
        "terms items block taint place error",
    ),
    "KnowledgeStored": Event(
        "An item of knowledge was stored, or could not be.", "place id kind change contradicts error"
    ),
    "ContextCompacted": Event(
        "The model is no longer sent some messages or results: they are too old, or a content filter refused them.",
        "strategy messages_dropped messages_masked messages_replaced error summary usage fields_cut unused",
    ),
    "ModelFailedOver": Event("A model gave way to the next of its tier.", "from to why"),
    "ReasoningComplete": Event(
        "The model's reply: calls, or an answer. A goal asks for a `turn`: `goal_plan`, `goal_decide`, …",
        "actions finish usage cost_usd model turn prompt left_out repaired",
    ),
    "PolicyEvaluated": Event(
        "The gate's verdict on each proposal; `error` where it could not decide, which denies.",
        "action_count denied_count places verdicts calls about error",
    ),
    "ToolsDispatched": Event(
        "Calls that the gate let through are carried out, `duration_s` after the reply that makes them.",
        "tool_count tools duration_s",
    ),
    "ObservationsCollected": Event(
        "What became of every call: `ok`, `failed`, `cancelled`, `unfinished` or `not_run`.",
        "observation_count outcomes",
    ),
    "ApprovalRequested": Event(
        "The run waits for a person: for a yes to a call, a way out of a failure, or more budget.",
        "kind id place tool call_id arguments reason approvers expires_at question queue",
    ),
    "ApprovalResolved": Event(
        "A person, or the time, has decided it.", "kind id place tool approved approver choice by reason answer"
    ),
    "QuestionAsked": Event("The model or a goal asks people something.", "id question place choices"),
    "QuestionAnswered": Event("They have answered.", "id question choice answer by reason place"),
    "RecoveryTriggered": Event(
        "A call that failed was retried, replaced, skipped, given up or decided on.",
        "tool call_id strategy error outcome attempts calls letter_id text",
    ),
    "StepLimitReached": Event(
        "A step that got nowhere is stopped: a tool with its arguments.", "step_id tool attempts reason"
    ),
    "CircuitOpened": Event(
        "A tool that kept failing is left alone for a while.", "tool scope failures recovery_s cause"
    ),
    "CircuitClosed": Event("It works again.", "tool scope"),
    "SagaEnded": Event("A saga was carried out, or taken back.", "place call_id outcome error calls"),
    "DecisionGrounded": Event(
        "A declared rule has decided on recorded facts.",
        "place decision outcome rule fields facts declaration rationale",
    ),
    "CritiqueEvaluated": Event(
        "A critic has reviewed an answer or a call, and what follows from that.",
        "kind critic place target call_id score approved says_approved dimensions reviewer round then usage feedback",
    ),
    "DelegationStarted": Event(
        "Another agent works on a part; its journal stands between this and the end.",
        "tool call_id agent task workflow_id",
    ),
    "DelegationEnded": Event("It has ended.", "tool call_id workflow_id reason detail usage"),
    "InterventionReceived": Event(
        "Somebody has steered, paused, resumed, aborted or rewound the run, or raised its budget.",
        "kind text known refused to_iteration steer left of bytes kept",
    ),
    "InterventionRefused": Event("An intervention that the run could not take in.", "kind reason"),
    "NotificationFailed": Event("People could not be told of what waits for them.", "about error"),
    "PlanMade": Event("A goal has its plan.", "steps pipeline kind"),
    "PlanAdjusted": Event("The plan is another one from here on.", "by steps"),
    "StepExecuted": Event("A step of the plan was carried out.", "step skill place status error"),
    "StepEvaluated": Event("What it brought has its score.", "step score quality label by"),
    "StepOverridden": Event("A person has put another tool in place of a step's.", "step skill"),
    "MemoryCompressed": Event("What a goal keeps in mind was made shorter.", "before after taken"),
    "DecisionMade": Event("What a goal does next.", "action by confidence reason"),
    "Delivered": Event("The answer of a goal was brought to a channel.", "name kind attempts"),
    "DeliveryFailed": Event(
        "It could not be brought there; `orga requeue` sends it again.", "name kind error attempts"
    ),
    "TurnStarted": Event("A turn of a session begins, with budgets of its own; `turn` is its number.", "turn message"),
    "TurnEnded": Event("It has ended; the session goes on.", "turn reason detail iterations usage"),
    "BuildChanged": Event("Workflow code of another build decides from here on.", "before build"),
    "PastMissing": Event("The server has no longer what came before.", "detail"),
    "Terminated": Event(
        "The run has ended.", "reason detail iterations usage tool_calls duration_s conversation_digest"
    ),
}
"""By name, in the order in which a run comes to them."""
