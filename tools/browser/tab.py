"""One tab: what a person does with it (look, click, type), and what the page did meanwhile."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.browser.cdp import BrowserError, Cdp, Event

# A busy machine takes its time; a wait that succeeds does not last.
WAIT_S: Final = 60.0
POLL_S: Final = 0.03
# key -> (code, Windows virtual key code, text)
KEYS: Final[Mapping[str, tuple[str, int, str]]] = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    " ": ("Space", 32, " "),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
}
MODIFIERS: Final = {"alt": 1, "control": 2, "meta": 4, "shift": 8}


@dataclass(frozen=True)
class Tab:
    """A page under test. Every wait is bounded and raises BrowserError at its end."""

    cdp: Cdp
    target: str
    session: str

    @classmethod
    def open(cls, cdp: Cdp, width: int, height: int) -> Tab:
        """A new empty tab of this browser that reports its console and its requests."""
        target = cdp.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = cdp.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = cls(cdp, target, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.viewport(width, height)
        tab.call("Emulation.setFocusEmulationEnabled", {"enabled": True})
        return tab

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """One command of this tab's session."""
        return self.cdp.call(method, params, session=self.session)

    def close(self) -> None:
        """Close the tab; its session ends with it."""
        self.cdp.call("Target.closeTarget", {"targetId": self.target})

    def viewport(self, width: int, height: int, scale: float = 1.0) -> None:
        """CSS pixels, and device pixels per CSS pixel."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def media(self, **features: str) -> None:
        """What the system prefers, as `prefers_color_scheme="dark"`."""
        listed = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", {"features": listed})

    def before_load(self, script: str) -> None:
        """Run this in every page that is opened from now on, before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def goto(self, url: str) -> None:
        """Open a page, and wait until it has loaded."""
        answer = self.call("Page.navigate", {"url": url})
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON; a promise is awaited."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", params)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            said = details.get("exception", {}).get("description", details.get("text"))
            raise BrowserError(f"{expression}: {said}")
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = WAIT_S) -> Any:
        """The value of the expression once it is truthy."""
        deadline = time.monotonic() + timeout_s
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() >= deadline:
                raise BrowserError(f"not true within {timeout_s:g} s: {expression}")
            self.cdp.pump(POLL_S)

    def text(self, selector: str) -> str:
        """The visible text of the first element that matches; empty when there is none."""
        quoted = json.dumps(selector)
        return str(
            self.evaluate(
                f"(e => e?.checkVisibility() ? e.innerText : '')(document.querySelector({quoted}))"
            )
        )

    def click(self, selector: str) -> None:
        """A real press of the mouse at the middle of the element, scrolled into view."""
        x, y = self._middle(selector)
        point = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, **point})

    def hover(self, selector: str) -> None:
        """Move the mouse to the middle of the element."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def focus(self, selector: str) -> None:
        """Put the keyboard focus on an element."""
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")

    def press(self, key: str, *modifiers: str) -> None:
        """Press and release one key of KEYS."""
        code, number, text = KEYS[key]
        held = sum(MODIFIERS[name] for name in modifiers)
        params = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": held}
        down = {"type": "keyDown", **params, "text": text if not held else ""}
        self.call("Input.dispatchKeyEvent", down)
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **params})

    def type_text(self, text: str) -> None:
        """Enter text where the focus is, as an input method would."""
        self.call("Input.insertText", {"text": text})

    def screenshot(self) -> bytes:
        """PNG of the viewport."""
        answer = self.call("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": False})
        return base64.b64decode(answer["data"])

    def events(self, method: str) -> list[Event]:
        """What this tab reported so far."""
        self.cdp.pump(0.0)
        return [event for event in self.cdp.events[self.session] if event.method == method]

    def problems(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions, violations of the policy."""
        return list(self._problems())

    def requested(self) -> list[str]:
        """The addresses of everything that was asked for over the network."""
        sent = self.events("Network.requestWillBeSent")
        return [str(event.params["request"]["url"]) for event in sent]

    def _problems(self) -> Iterator[str]:
        for event in self.events("Runtime.exceptionThrown"):
            details = event.params["exceptionDetails"]
            yield str(details.get("exception", {}).get("description", details["text"]))
        for event in self.events("Runtime.consoleAPICalled"):
            if event.params["type"] in {"error", "warning", "assert"}:
                yield str([argument.get("value") for argument in event.params["args"]])
        for event in self.events("Log.entryAdded"):
            entry = event.params["entry"]
            if entry["level"] in {"error", "warning"}:
                yield f"{entry['text']} {entry.get('url', '')}".strip()

    def _middle(self, selector: str) -> tuple[float, float]:
        quoted = json.dumps(selector)
        self.wait_for(f"document.querySelector({quoted}) !== null")
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({quoted});"
            " e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2, r.width, r.height]; })()"
        )
        if box[2] <= 0 or box[3] <= 0:
            raise BrowserError(f"{selector}: has no area to click on")
        return float(box[0]), float(box[1])
