"""How much longer one thing takes than another, from pairs that were measured side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Final

from errors import MisuseError

# Chance that the interval misses the truth.
ALPHA: Final = 0.05


@dataclass(frozen=True)
class Shift:
    """In the unit of the differences. low, high: where 95 % of such intervals hold the truth."""

    estimate: float
    low: float
    high: float

    def share_of(self, whole: float) -> Shift:
        return Shift(self.estimate / whole, self.low / whole, self.high / whole)


def shift(differences: Sequence[float]) -> Shift:
    """Hodges-Lehmann estimate: the median of all means of two; and Wilcoxon's exact interval.

    One turn that another program disturbed moves neither much. Few differences (below 6) allow no
    interval of 95 %; then it is that of all means. Raises MisuseError without differences.
    """
    if not differences:
        raise MisuseError("no pair was measured")
    means = sorted((a + b) / 2 for a, b in combinations_with_replacement(differences, 2))
    cut = _outside(len(differences))
    return Shift(statistics.median(means), means[cut], means[-1 - cut])


def _outside(pairs: int) -> int:
    """How many of the sorted means are left out at each end.

    k of them may be where W <= k has a chance of ALPHA / 2 at most. W, the signed-rank statistic
    under symmetry, is the sum of a random subset of 1..pairs; all 2 ** pairs subsets are counted.
    """
    subsets = [1] + [0] * (pairs * (pairs + 1) // 2)
    for rank in range(1, pairs + 1):
        for total in range(len(subsets) - 1, rank - 1, -1):
            subsets[total] += subsets[total - rank]
    cut, reached = 0, subsets[0] + subsets[1]
    while reached * 2 <= ALPHA * 2**pairs:
        cut += 1
        reached += subsets[cut + 1]
    return cut
