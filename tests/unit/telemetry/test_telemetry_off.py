"""Disabled telemetry costs nothing and sets nothing."""

import subprocess
import sys
from time import perf_counter

from orga.workflows.phases.control.visibility import phase_span

PROGRAM = """
import sys
from orga import worker
from orga.client.config.sections import TelemetryConfig
from orga.client.telemetry.start import telemetry

telemetry(TelemetryConfig()).shutdown()
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "requests"))])
"""


def test_disabled_telemetry_imports_no_sdk_and_no_exporter() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_with_disabled_telemetry_the_spans_of_an_iteration_take_less_than_20_microseconds() -> None:
    def iteration() -> None:
        for phase in ("reason", "gate", "act"):
            with phase_span(phase, 1):
                pass

    def mean_s(rounds: int = 200) -> float:
        began = perf_counter()
        for _ in range(rounds):
            iteration()
        return (perf_counter() - began) / rounds

    assert min(mean_s() for _ in range(20)) < 20e-6
