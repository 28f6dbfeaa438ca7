"""Versions of the loop's rules, and the names of the changes that runs under way take no part in.

A change of workflow code that gives a history other commands is guarded by `workflow.patched(NAME)`: runs that passed
the place before go on as they began. See "How the loop's rules change" in ARCHITECTURE.md.
"""

LOOP_VERSION = 6
"""Of the loop's rules; one more with each change that a history could tell. A run's setup records it."""

FIRST_CALLS_SHOWN = 3
"""Loop version from which on a run writes how far it is where its first calls begin. Its setup tells which one it began
with: the mark of a patch would cost each run more than what is written."""

CLOSED_CIRCUIT_SHOWN = "closed-circuit-shown"
"""A circuit that closes leaves the search attribute of open ones; before, the tool stayed listed."""

STOPPED_STEPS_COUNTED = "stopped-steps-counted"
"""Replies that hold nothing but calls of stopped steps end the run; before, it went on to a limit."""

LEARNT_BY_TURN = "learnt-by-turn"
"""What a turn of a session has taught is stored at its end; before, all of it was at the end of the session."""

EACH_MESSAGE_LOOKED_UP = "each-message-looked-up"
"""What each message of a session refers to is looked up ahead of its turn; before, that of the first one alone."""

DELEGATES_AWAITED = "delegates-awaited"
"""A delegate whose turn of a session is cut has the time of its calls to end in; before, it had the grace."""

GUIDANCE_OF_GOALS = "guidance-of-goals"
"""A step by a person's word is told to the model of the goal alone, and the journal tells what guidance the steps of a
pipeline are not told; before, agents at work on other steps were told, too, and what was left out nobody told."""
