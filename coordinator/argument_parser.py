"""A strict argument parser: every mistake is one ConfigError, nothing is guessed.

No abbreviations, no option given twice, no unknown option; help is a value, not a side effect. It
must not know any subcommand.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from errors import ConfigError, ConfigProblem
from manifest.value_rules import parse_integer, shown

USAGE_CODE: Final = "config.usage"
HELP_WIDTH: Final = 100


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fixed width, so that the help text is the same on every terminal and can be tested."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=HELP_WIDTH)


class _StoreOnce(argparse.Action):
    """Stores a value, or True for a switch; the second occurrence is refused."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            given = "(switch)" if self.nargs == 0 else shown(values)
            raise ConfigError.single(option_string or self.dest, given, "given twice", USAGE_CODE)
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


class StrictParser(argparse.ArgumentParser):
    """Options and positionals are texts or switches; absent ones are None."""

    def __init__(self, usage: str, description: str, examples: str) -> None:
        super().__init__(
            usage=usage,
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )

    def option(self, flag: str, metavar: str, explanation: str) -> None:
        """An option with a value; argparse.SUPPRESS as explanation leaves it out of the help."""
        self.add_argument(flag, action=_StoreOnce, metavar=metavar, help=explanation)

    def switch(self, flag: str, explanation: str) -> None:
        """An option without a value."""
        self.add_argument(flag, action=_StoreOnce, nargs=0, help=explanation)

    def directory(self, explanation: str) -> None:
        """The one positional argument, DIR."""
        self.add_argument("directory", nargs="?", metavar="DIR", help=explanation)

    def read(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[ConfigProblem]]:
        """The values, and a problem for each argument that is not one of this parser's.

        Raises ConfigError for an option without its value or given twice.
        """
        namespace, unknown = self.parse_known_args(list(argv))
        options = [argument for argument in unknown if argument.startswith("-")]
        return namespace, [self._unknown(argument) for argument in options or unknown]

    def error(self, message: str) -> NoReturn:
        """Called by argparse with a text of its own; the two that can happen get ours."""
        subject, _, rule = message.removeprefix("argument ").partition(": ")
        problem = ConfigProblem("command line", "(as given)", shown(message))
        if rule == "expected one argument":
            problem = ConfigProblem(shown(subject), "(no value)", "needs a value")
        elif rule.startswith("ignored explicit argument"):
            value = rule.partition("argument ")[2]
            problem = ConfigProblem(shown(subject), shown(value), "takes no value")
        raise ConfigError([problem], USAGE_CODE)

    def _unknown(self, argument: str) -> ConfigProblem:
        if not argument.startswith("-"):
            return ConfigProblem("argument", shown(argument), "is one too many")
        known = [flag for action in self._actions for flag in action.option_strings]
        hint = did_you_mean(argument, known)
        return ConfigProblem("option", shown(argument), f"is unknown{hint}")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint to the nearest known word, or nothing."""
    by_letters = {one.lstrip("-"): one for one in known}
    letters = word.partition("=")[0].lstrip("-")
    near = difflib.get_close_matches(letters, list(by_letters), n=1, cutoff=0.7)
    return f"; did you mean {by_letters[near[0]]}?" if near else ""


def optional_integer(
    flag: str, typed: str | None, maximum: int, problems: list[ConfigProblem]
) -> int | None:
    """The value of an integer option from 0 to maximum; None (and a problem) when it is wrong."""
    value = None if typed is None else parse_integer(typed)
    if typed is not None and (value is None or not 0 <= value <= maximum):
        problems.append(ConfigProblem(flag, shown(typed), f"must be 0 to {maximum}"))
        return None
    return value


def optional_word(
    flag: str, typed: str | None, words: Sequence[str], problems: list[ConfigProblem]
) -> str | None:
    """The value of an option that is one of `words`; None (and a problem) when it is not."""
    if typed is not None and typed not in words:
        problems.append(ConfigProblem(flag, shown(typed), f"must be one of {', '.join(words)}"))
        return None
    return typed


def refuse(problems: list[ConfigProblem]) -> None:
    """Raises ConfigError with all problems, if there are any."""
    if problems:
        raise ConfigError(problems, USAGE_CODE)
