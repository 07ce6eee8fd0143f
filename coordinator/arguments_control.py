"""What the command lines of a service share: its control socket, and numbers with limits."""

from __future__ import annotations

from coordinator.options import CallContext
from errors import ConfigError, ConfigProblem
from manifest.value_rules import parse_integer, shown
from wire.address import Address, parse_address

NOWHERE = Address(path="/")


def control_address(
    typed: str | None, context: CallContext, problems: list[ConfigProblem]
) -> Address:
    """The value of --control; NOWHERE, and a problem, when it is none."""
    if typed is None or not typed.startswith("unix:"):
        rule = "must be unix:PATH: whoever reaches the socket is obeyed, so it is a file's"
        value = "(not given)" if typed is None else shown(typed)
        problems.append(ConfigProblem("--control", value, rule))
        return NOWHERE
    try:
        path = context.path(typed.removeprefix("unix:"))
        return parse_address(f"unix:{path}", field="--control")
    except ConfigError as refused:
        problems.extend(refused.problems)
        return NOWHERE


def bounded(
    flag: str,
    typed: str | None,
    default: int,
    limits: tuple[int, int],
    problems: list[ConfigProblem],
) -> int:
    """An integer option from limits[0] to limits[1]."""
    if typed is None:
        return default
    value = parse_integer(typed)
    if value is None or not limits[0] <= value <= limits[1]:
        problems.append(ConfigProblem(flag, shown(typed), f"must be {limits[0]} to {limits[1]}"))
        return default
    return value
