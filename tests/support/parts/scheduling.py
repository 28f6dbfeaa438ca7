"""Distributes the tests to the processes of a test run."""

from xdist.scheduler import LoadFileScheduling

KILLS = "tests/crash/"


class Files(LoadFileScheduling):
    """Tests of a file run in one process. All tests that kill workers share one, because each file starts dozens."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KILLS if file.startswith(KILLS) else file
