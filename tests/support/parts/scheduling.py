"""How the tests are shared out among the processes of a run."""

from xdist.scheduler import LoadFileScheduling

KILLS = "tests/crash/"


class Files(LoadFileScheduling):
    """A file's tests run in one process; all that kill workers in the same: each file of them starts dozens."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KILLS if file.startswith(KILLS) else file
