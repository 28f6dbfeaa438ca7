"""The suite. Its processes and all that they start keep compiled code, also where the environment forbids it.

Some thousand processes would compile all code anew, which took as long as all tests together.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
