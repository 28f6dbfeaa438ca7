"""Program of an isolated process: `python -I isolated.py MODULE [ARGUMENT]...` runs `main` of one of our modules."""

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def run(module: str, *arguments: str) -> None:
    """Run the module's `main`; what `PYTHONPATH` names is searched last, and never the working folder."""
    _import_by_place()
    from orga.own_code import WORKER, keep_out, pin

    pin(WORKER)
    sys.path += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    keep_out(Path.cwd())
    sys.argv = [module, *arguments]
    import_module(module).main()


def _import_by_place() -> None:
    """Import the package that this file lies in, whatever else bears its name."""
    folder = Path(__file__).absolute().parent
    spec = spec_from_file_location("orga", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    sys.modules["orga"] = module_from_spec(spec)


if __name__ == "__main__":
    run(*sys.argv[1:])
