"""A second program in the demo's archive, as the worker is in the coordinator's."""

from __future__ import annotations

import sys

from google.protobuf import message

if __name__ == "__main__":
    sys.exit(0 if hasattr(message, "Message") else 1)
