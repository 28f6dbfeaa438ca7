"""Versions of the loop's rules, and the names of the changes that runs under way take no part in.

A change of workflow code that gives a history other commands is guarded by `workflow.patched(NAME)`: runs that passed
the place before go on as they began. See "How the loop's rules change" in ARCHITECTURE.md.
"""

LOOP_VERSION = 4
"""Of the loop's rules; once a release is made, one more with each change that a history could tell. A run's setup
records it."""

FIRST_CALLS_SHOWN = 3
"""Loop version from which on a run writes how far it is where its first calls begin. Its setup tells which one it began
with: the mark of a patch would cost each run more than what is written."""

CLOSED_CIRCUIT_SHOWN = "closed-circuit-shown"
"""A circuit that closes leaves the search attribute of open ones; before, the tool stayed listed."""

STOPPED_STEPS_COUNTED = "stopped-steps-counted"
"""Replies that hold nothing but calls of stopped steps end the run; before, it went on to a limit."""
