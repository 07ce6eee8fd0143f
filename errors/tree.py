"""Every way the system can fail, in one file.

TPError                     code, diagnostics(), exit_code, http_status
  ConfigError               refused before any process starts: field, value, rule     exit 2   400
  PeerError                 the conversation with a worker failed; rank, phase        exit 3   503
    ProtocolError           the bytes are not the next frame
    ContractError           a well-formed frame breaks the agreement
    DeadlineError           nothing arrived (or could be written) in time
  PoisonedError             an earlier PeerError stopped this group                   exit 3   503
  NumericsError             a rank's own numbers are not finite                       exit 3   503
  RequestError              the client's mistake; names the parameter                 exit 2   400
  CapacityError             can never fit                                             exit 2   400
  OverloadError             the queue is full                                         exit 1   429
  EvidenceError             a verifier finding: case, check                           exit 1   500
MisuseError                 our own bug; not a TPError, so no handler of outside faults catches it

The rule that classifies a peer's failure (docs/spec/session.md, clause S7): no frame could be read
-> protocol; a frame was read and it is not the agreed one -> contract; nothing came -> deadline.
Codes are stable and dotted (`contract.epoch`); callers and tests match codes, never message text.
"""

from __future__ import annotations

from dataclasses import dataclass
from errno import errorcode
from typing import ClassVar, Final

PROTOCOL_REASONS: Final = frozenset(
    {
        "magic",
        "version",
        "flags",
        "size",
        "checksum",
        "malformed",
        "not_canonical",
        "truncated",
        "closed",
    }
)
CONTRACT_REASONS: Final = frozenset(
    {
        "kind",
        "epoch",
        "sequence",
        "metadata",
        "fence",
        "program",
        "allocation",
        "ranks_disagree",
    }
)
DEADLINE_REASONS: Final = frozenset({"receive", "send", "handshake"})


class MisuseError(Exception):
    """A caller inside this repository broke an interface's rule. Crashes; never handled."""


class TPError(Exception):
    """Base of all failures that come from outside this code.

    code: stable dotted identifier. message: one sentence for a person.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def diagnostics(self) -> str:
        """The text a command line prints: the code, then the sentence."""
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, order=True)
class ConfigProblem:
    """One refused setting: the path of the field, the value as given, the rule it breaks."""

    field: str
    value: str
    rule: str

    def sentence(self) -> str:
        return f"{self.field} = {self.value}: {self.rule}"


class ConfigError(TPError):
    """Settings refused before any process starts; all problems are reported together."""

    exit_code = 2
    http_status = 400

    def __init__(self, problems: list[ConfigProblem], code: str = "config.invalid") -> None:
        if not problems:
            raise MisuseError("a ConfigError needs at least one problem")
        self.problems = tuple(problems)
        super().__init__(code, "; ".join(problem.sentence() for problem in problems))

    @classmethod
    def single(
        cls, field: str, value: object, rule: str, code: str = "config.invalid"
    ) -> ConfigError:
        """A ConfigError with one problem; `value` is shown as given."""
        return cls([ConfigProblem(field, str(value), rule)], code)


class PeerError(TPError):
    """The conversation with one worker failed. The first one stops the whole group.

    rank: None while the peer has not been identified. phase: the phase being waited for.
    errno: what the operating system said when it ended the stream, None where it said nothing. It
    is an observation beside the code, which does not depend on it (clause S7).
    """

    exit_code = 3
    http_status = 503
    family: ClassVar[str] = "peer"
    reasons: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        rank: int | None = None,
        phase: str | None = None,
        errno: int | None = None,
    ) -> None:
        if reason not in self.reasons:
            raise MisuseError(f"{type(self).__name__} has no reason {reason!r}")
        super().__init__(f"{self.family}.{reason}", message)
        self.reason = reason
        self.rank = rank
        self.phase = phase
        self.errno = errno

    @property
    def errno_name(self) -> str | None:
        """The symbol of `errno`, such as ECONNRESET; its digits where it has none."""
        return None if self.errno is None else errorcode.get(self.errno, str(self.errno))

    def located(self, rank: int, phase: str) -> PeerError:
        """The same failure, with the rank and phase filled in where they were unknown."""
        return type(self)(
            self.reason,
            self.message,
            rank=rank if self.rank is None else self.rank,
            phase=phase if self.phase is None else self.phase,
            errno=self.errno,
        )

    def reworded(self, message: str) -> PeerError:
        """The same failure in other words."""
        return type(self)(self.reason, message, rank=self.rank, phase=self.phase, errno=self.errno)

    def diagnostics(self) -> str:
        who = "an unidentified peer" if self.rank is None else f"rank {self.rank}"
        where = "" if self.phase is None else f" in phase {self.phase}"
        said = "" if self.errno is None else f" ({self.errno_name}, errno {self.errno})"
        return f"{self.code}: {who}{where}: {self.message}{said}"


class ProtocolError(PeerError):
    """The bytes that arrived are not a frame."""

    family = "protocol"
    reasons = PROTOCOL_REASONS


class ContractError(PeerError):
    """A well-formed frame arrived and it is not the one the agreement demands."""

    family = "contract"
    reasons = CONTRACT_REASONS


class DeadlineError(PeerError):
    """Nothing arrived, or nothing could be written, before the absolute deadline."""

    family = "deadline"
    reasons = DEADLINE_REASONS


class PoisonedError(TPError):
    """This group stopped earlier; `cause` is the first failure, which never changes."""

    exit_code = 3
    http_status = 503

    def __init__(self, cause: PeerError) -> None:
        super().__init__("group.poisoned", f"stopped by an earlier failure: {cause.diagnostics()}")
        self.cause = cause


class NumericsError(TPError):
    """A rank computed numbers that are not finite; the rank stops, and with it the group."""

    exit_code = 3
    http_status = 503

    def __init__(self, message: str) -> None:
        super().__init__("numerics.not_finite", message)


class RequestError(TPError):
    """A client's mistake; `param` is the offending parameter."""

    exit_code = 2
    http_status = 400

    def __init__(self, code: str, message: str, *, param: str) -> None:
        super().__init__(code, message)
        self.param = param


class CapacityError(RequestError):
    """A request that could never fit, whatever else is running."""


class OverloadError(TPError):
    """The waiting queue is full; the client may try again."""

    http_status = 429


class EvidenceError(TPError):
    """A verifier finding: which case (None for the package as a whole) and which check."""

    def __init__(self, check: str, message: str, *, case_id: str | None = None) -> None:
        super().__init__(f"evidence.{check}", message)
        self.check = check
        self.case_id = case_id
