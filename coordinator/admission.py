"""May this request enter: now, later or never? Pure arithmetic over the limits of all ranks.

A request is admitted with one slot and every page of its full life, so an admitted request can't
run out in the middle and nothing is ever preempted. What can't ever fit is refused at once, because
a request that waits for the impossible would block the queue for ever.
"""

from __future__ import annotations

from coordinator.submission import Submission
from errors import CapacityError, OverloadError, TPError
from program.plan import PlanLimits, pages_needed


def lifetime_pages(submission: Submission, limits: PlanLimits) -> int:
    """ceil((prompt + max_tokens - 1) / page_tokens)."""
    return pages_needed(submission.tokens_max, limits.page_tokens)


def refusal(
    submission: Submission, limits: PlanLimits, waiting: int, waiting_max: int
) -> TPError | None:
    """Why the request is refused on arrival: CapacityError, OverloadError, or None to queue it.

    waiting: requests in the queue now. Impossible comes first: trying again would not help.
    """
    pages = lifetime_pages(submission, limits)
    if pages > limits.pages:
        return CapacityError(
            "request.capacity",
            f"max_tokens = {submission.max_tokens}: the request needs {pages} pages of "
            f"{limits.page_tokens} tokens and all ranks together offer {limits.pages}",
            param="max_tokens",
        )
    if waiting >= waiting_max:
        return OverloadError("overload.queue", f"{waiting} requests are waiting already")
    return None


def fits_now(pages: int, free_slots: int, free_pages: int) -> bool:
    """Admit at once, or defer until others leave."""
    return free_slots > 0 and pages <= free_pages
