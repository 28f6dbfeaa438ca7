"""One warning about a collector that does not answer, instead of several for each export."""

import logging
import re

_EXPORTERS = tuple(f"opentelemetry.exporter.otlp.proto.http.{kind}_exporter" for kind in ("trace", "metric"))
_log = logging.getLogger(__name__)


class _First(logging.Filter):
    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = re.sub(r"//[^/@]*@", "//", endpoint)
        self._said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the record; the first is told in our words."""
        if not self._said:
            self._said = True
            _log.warning("the collector at %s takes no telemetry: it is lost; runs go on", self._endpoint)
        return False


def one_warning(endpoint: str) -> None:
    """Hush the exporters of this process for good, the retries that outlive a shutdown included."""
    first = _First(endpoint)
    for name in _EXPORTERS:
        logging.getLogger(name).addFilter(first)
