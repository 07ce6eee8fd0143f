"""Vectors of docs/spec/session.md S1 to S5: one more frame, or the end, after a legal beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from testdata.vectors.vector_file import FOLDED, FROM_WORKER, KINDS, VectorFile

NOTES = {
    "End": "An end of the stream that is taken for a clean one (S2).",
    "Epoch": "Stale traffic (S3).",
    "Order": "Two faults at once: S5 says which code.",
    "Product": "Every frame in every state; all that is not in the table must be refused.",
    "Sequence": "A repeated, lost or reordered frame (S4).",
}
PHASES = ("attention", "mlp")
FIRST_EPOCH = 7

FORMS = {
    "plain": (False, False),
    "folded": (True, False),
    "planned": (False, True),
    "planned-folded": (True, True),
}

# S1 by hand. `+` is the FOLDED form, `!` a REDUCTION in the last phase, `*` a COMMAND with a plan.
TABLE: dict[str, tuple[str, dict[str, str]]] = {
    "NEW": ("W", {"HELLO": "GREETED"}),
    "GREETED": ("C", {"ACK": "LOADING"}),
    "LOADING": (
        "C",
        {"WEIGHT": "LOADING", "LOAD": "LOAD_OPEN", "INPUT": "FED", "COMMAND": "OPEN"},
    ),
    "LOAD_OPEN": ("W", {"FENCE": "IDLE"}),
    "IDLE": ("C", {"INPUT": "FED", "COMMAND": "OPEN", "COMMAND*": "PLANNED"}),
    "PLANNED": ("W", {"FENCE": "AGREED"}),
    "AGREED": ("C", {"COMMAND": "OPEN"}),
    "FED": ("C", {"COMMAND": "OPEN"}),
    "OPEN": ("W", {"PARTIAL": "PARTIAL_SENT", "PARTIAL+": "FENCED"}),
    "PARTIAL_SENT": ("W", {"FENCE": "FENCED"}),
    "FENCED": ("C", {"REDUCTION": "REDUCED", "REDUCTION!": "LAST", "REDUCTION+": "OPEN"}),
    "REDUCED": ("C", {"COMMAND": "OPEN"}),
    "LAST": ("W", {"RESULT": "IDLE"}),
}


class Place(NamedTuple):
    """Where a session stands: what its next frame must be like, and how it is named in errors."""

    state: str = "NEW"
    phase_index: int = 0
    epoch: int = 0
    phase: str = "hello"
    sent: tuple[int, int] = (0, 0)
    plan_due: bool = False

    @property
    def name(self) -> str:
        return f"{self.state}/{self.phase_index}"

    def sequence(self, sender: str) -> int:
        return self.sent["WC".index(sender)]


def session_vectors() -> VectorFile:
    """The full product, then epochs, sequences, ends and the order of checks."""
    vectors: list[dict[str, Any]] = []
    tables: dict[str, Any] = {"phases": list(PHASES), "first_epoch": FIRST_EPOCH, "paths": {}}
    for form in FORMS:
        places = _reachable(form)
        tables["paths"][form] = {place.name: path for place, path in places.values()}
        for place, _ in places.values():
            vectors += _product(form, place)
            vectors += _counters(form, place)
            vectors += _ends(form, place)
    return VectorFile(
        "After the frames of paths[form][after], one more frame, [sender, kind, flags, epoch, "
        "sequence], or the end of a sender's stream. Valid: the state, running phase, its name in "
        "errors and epoch that follow. The program has the phases listed here; forms whose name "
        "has `planned` are of a program that takes plans.",
        NOTES,
        [{"id": f"session-{at:04}", **vector} for at, vector in enumerate(vectors, 1)],
        tables,
    )


def _event(kind: str, flags: int, place: Place, folded: bool) -> str | None:
    """The event of a frame, or None for the form that the program does not use."""
    last = place.phase_index == len(PHASES) - 1
    if kind == "PARTIAL":
        return None if bool(flags) != folded else "PARTIAL+" if flags else "PARTIAL"
    if kind == "REDUCTION":
        if bool(flags) != (folded and not last):
            return None
        return "REDUCTION+" if flags else "REDUCTION!" if last else "REDUCTION"
    if flags or (place.plan_due and kind == "INPUT"):
        return None
    return "COMMAND*" if place.plan_due and kind == "COMMAND" else kind


def _next(place: Place, sender: str, kind: str, flags: int, form: str) -> Place | str:
    """The place after the frame, or the code of S1."""
    folded, planned = FORMS[form]
    event = _event(kind, flags, place, folded)
    if event is None:
        return "contract.kind"
    turn, events = TABLE[place.state]
    if sender != turn or event not in events:
        return "contract.fence" if kind in ("PARTIAL", "FENCE") else "contract.kind"
    state, index, epoch, phase = events[event], place.phase_index, place.epoch, place.phase
    plan_due = place.plan_due
    if kind == "ACK":
        epoch, phase, plan_due = FIRST_EPOCH, "load", planned
    elif state == "PLANNED":
        phase, plan_due = "plan", False
    elif state == "OPEN":
        index = index + 1 if place.state in ("REDUCED", "FENCED") else 0
        phase = PHASES[index]
    elif state == "LAST":
        phase = "result"
    elif kind == "RESULT":
        epoch, index, plan_due = epoch + 1, 0, planned
    sent = (place.sent[0] + (sender == "W"), place.sent[1] + (sender == "C"))
    return Place(state, index, epoch, phase, sent, plan_due)


def _epoch(place: Place, kind: str) -> int:
    return FIRST_EPOCH if place.state == "GREETED" and kind != "HELLO" else place.epoch


def _reachable(form: str) -> dict[str, tuple[Place, list[list[Any]]]]:
    """The shortest legal beginning that leads to each place."""
    found: dict[str, tuple[Place, list[list[Any]]]] = {}
    waiting: list[tuple[Place, list[list[Any]]]] = [(Place(), [])]
    while waiting:
        place, path = waiting.pop(0)
        if place.name in found:
            continue
        found[place.name] = place, path
        for kind in KINDS:
            for flags in (0, FOLDED):
                sender = "W" if kind in FROM_WORKER else "C"
                after = _next(place, sender, kind, flags, form)
                if isinstance(after, Place):
                    frame = [sender, kind, flags, _epoch(place, kind), place.sequence(sender)]
                    waiting.append((after, [*path, frame]))
    return found


def _vector(
    form: str, place: Place, comment: str, flag: str, after: Place | str, **tried: Any
) -> dict[str, Any]:
    valid = isinstance(after, Place)
    outcome = (
        {
            "state": after.state,
            "phase_index": after.phase_index,
            "phase": after.phase,
            "epoch": after.epoch,
        }
        if isinstance(after, Place)
        else {"code": after}
    )
    return {
        "comment": f"{form}, {place.name}: {comment}",
        "flags": [flag],
        "form": form,
        "after": place.name,
        **tried,
        "result": "valid" if valid else "invalid",
        **outcome,
    }


def _product(form: str, place: Place) -> Iterator[dict[str, Any]]:
    """FOLDED on other kinds never comes this far (frame.md F7, step 4)."""
    for sender in "WC":
        for kind in KINDS:
            for flags in (0, FOLDED) if kind in ("PARTIAL", "REDUCTION") else (0,):
                after = _next(place, sender, kind, flags, form)
                epoch = FIRST_EPOCH if (place.state, sender) == ("GREETED", "C") else place.epoch
                frame = [sender, kind, flags, epoch, place.sequence(sender)]
                comment = f"{kind}{' with FOLDED' if flags else ''} from {sender}"
                yield _vector(form, place, comment, "Product", after, frame=frame)


def _counters(form: str, place: Place) -> Iterator[dict[str, Any]]:
    """A frame that is right but for its epoch or its sequence."""
    turn, _ = TABLE[place.state]
    for kind in KINDS:
        for flags in (0, FOLDED):
            if isinstance(_next(place, turn, kind, flags, form), str):
                continue
            epoch, sequence = _epoch(place, kind), place.sequence(turn)
            wrong_epochs = [epoch + 1, 2**64 - 1] + ([epoch - 1] if epoch else [])
            for wrong in [0] if kind == "ACK" else wrong_epochs:
                frame = [turn, kind, flags, wrong, sequence]
                comment = f"{kind} of epoch {wrong}"
                yield _vector(form, place, comment, "Epoch", "contract.epoch", frame=frame)
            for wrong in [sequence + 1, 2**64 - 1] + ([sequence - 1] if sequence else []):
                frame = [turn, kind, flags, epoch, wrong]
                comment = f"{kind} of sequence {wrong}"
                yield _vector(form, place, comment, "Sequence", "contract.sequence", frame=frame)
            wrong_epoch = 0 if kind == "ACK" else epoch + 1
            frame = [turn, kind, flags, wrong_epoch, sequence + 1]
            comment = f"{kind} of a wrong epoch and sequence"
            yield _vector(form, place, comment, "Order", "contract.epoch", frame=frame)
    frame = [turn, "HELLO", 0, _epoch(place, ""), place.sequence(turn) + 1]
    comment = "a wrong sequence and perhaps a wrong kind"
    yield _vector(form, place, comment, "Order", "contract.sequence", frame=frame)


def _ends(form: str, place: Place) -> Iterator[dict[str, Any]]:
    for sender in "WC":
        clean = (place.state, sender) == ("IDLE", "C")
        after = place._replace(state="CLOSED") if clean else "protocol.closed"
        yield _vector(form, place, f"{sender} closes", "End", after, end=sender)
