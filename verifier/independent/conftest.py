"""Puts this directory first on the path for pytest, as running the directory does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parent))
