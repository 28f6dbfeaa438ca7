"""The program of an isolated process: `python -I isolated.py MODULE [ARGUMENT]...` runs `main` of our module."""

import gc
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def run(module: str, *arguments: str) -> None:
    """Run the module's `main`. Entries of `PYTHONPATH` are searched last, and the working folder never."""
    _import_own_package()
    from orga.own_code import pin, remove_clone_from_path, remove_from_path

    pin()
    remove_clone_from_path()
    sys.path += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    remove_from_path(_working_folder())
    sys.argv = [module, *arguments]
    with interrupt_silently():
        main = import_module(module).main
    main()


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        sys.stderr.write("orga: the working folder was deleted or moved. Change into another folder (cd)\n")
        sys.exit(2)


@contextmanager
def interrupt_silently() -> Generator[None]:
    """Let Ctrl-C end the process at once and silently during the block, which loads the command.

    The command cannot report the interrupt yet, and a library that is being loaded could swallow an exception. The
    garbage collector is off meanwhile. Later it ignores the loaded objects, because they stay.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGINT, usual)


def _import_own_package() -> None:
    """Import the package of this file, even if another package on `sys.path` has the same name."""
    folder = Path(__file__).absolute().parent
    spec = spec_from_file_location("orga", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["orga"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["orga"])


if __name__ == "__main__":
    run(*sys.argv[1:])
