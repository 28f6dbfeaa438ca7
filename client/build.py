"""Which build a worker is of."""

BUILD_ID = "0.1.0"
"""Stands in three events of every workflow and activity task, so it is short."""
