"""Python's collector of cycles, told what a loaded service is like.

What exists once a model is loaded stays, and is not looked at again. What each step leaves behind
(frames, requests, times) goes when it is no longer kept, without the collector's help: it looks
rarely, because all it finds by looking often is that this is still kept.
"""

from __future__ import annotations

import gc
from typing import Final

# New objects between two looks at the young ones; a step of eight requests leaves some 120.
YOUNG_MAX: Final = 10_000


def settle() -> None:
    """All that exists now is taken for lasting; may be called again, and then is thought over."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, middle, old)
