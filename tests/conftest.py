"""What all tests share."""

import os
import tempfile
from pathlib import Path

# What JAX compiles is kept on disk while the tests run, so that a program which several tests, or both of pytest's
# workers, need is compiled once. Set before JAX is imported, and inherited by the commands that tests start.
_kept = Path(tempfile.gettempdir()) / f"posterity-tests-{os.getuid()}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_kept))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
