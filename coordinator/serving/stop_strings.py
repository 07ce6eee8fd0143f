"""Stop strings in text that comes in pieces: the text before the first stop, and nothing of it.

The first stop is the one that is complete first; of those complete at the same character, the
longest. So the result depends on the text alone and not on how tokens cut it. Each string is
matched by its prefix function (Knuth, Morris and Pratt 1977): a few comparisons per character,
whatever the strings are.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """feed pieces until `found`; what may still become a stop is held back until `flush`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._matchers = [_Matcher(stop) for stop in stops]
        self._firsts = {stop[0] for stop in stops}
        self._held = ""
        self.found: str | None = None

    def feed(self, piece: str) -> str:
        """What is certain now. Empty once a stop was found."""
        if self.found is not None:
            return ""
        if not self._held and self._firsts.isdisjoint(piece):
            return piece
        for index, character in enumerate(piece):
            complete = [one for one in self._matchers if one.feed(character)]
            if complete:
                self.found = max((one.stop for one in complete), key=len)
                text = self._held + piece[: index + 1]
                self._held = ""
                return text[: len(text) - len(self.found)]
        text = self._held + piece
        certain = len(text) - max(one.matched for one in self._matchers)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """The end of the text: what was held back did not become a stop."""
        held, self._held = self._held, ""
        return held


class _Matcher:
    """matched: how many characters at the end of the text are the beginning of the stop string."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = _borders(stop)

    def feed(self, character: str) -> bool:
        """Whether the stop string ends with this character."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._borders[self.matched - 1]
        if self.stop[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.stop)


def _borders(stop: str) -> list[int]:
    """For every beginning of the string, the length of its longest proper border."""
    borders = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = borders[length - 1]
        if stop[index] == stop[length]:
            length += 1
        borders[index] = length
    return borders
