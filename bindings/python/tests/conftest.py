from __future__ import annotations

import os
import sys

import hypothesis
from hypothesis.configuration import set_hypothesis_home_dir

# Not beside the sources.
set_hypothesis_home_dir(
    os.path.join(os.path.dirname(__file__), "../../../build/bindings/python/hypothesis")
)

# Examples wait for other threads, so one may take long on a busy machine without being wrong.
hypothesis.settings.register_profile("symm", deadline=None, print_blob=True, derandomize=False)
hypothesis.settings.load_profile("symm")

sys.path.insert(0, os.path.dirname(__file__))
