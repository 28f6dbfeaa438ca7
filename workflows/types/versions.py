"""The version of the loop's rules, and the names of changes that runs in flight do not follow.

A change of workflow code that gives a history other commands is guarded by `workflow.patched(NAME)`: runs that passed
the place before continue as they began. See "How the loop's rules change" in ARCHITECTURE.md.
"""

LOOP_VERSION = 4
"""Version of the loop's rules. After the first release it rises by one with each change that a history can show. A
run's setup records it.
"""

FIRST_CALLS_SHOWN = 3
"""From this loop version on, a run writes its progress when its first calls begin. Its setup records the version that
it began with, because a patch marker would cost each run more than this write.
"""

CLOSED_CIRCUIT_SHOWN = "closed-circuit-shown"
"""A circuit that closes is removed from the search attribute of open circuits. Before, the tool stayed listed."""

STOPPED_STEPS_COUNTED = "stopped-steps-counted"
"""Replies that hold only calls of stopped steps end the run. Before, it continued until it reached a limit."""
