"""Headless Chromium, driven over its own pipe: no driver and no library in between."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
SECONDS = 60


def chromium() -> str | None:
    """Path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. Source of the calls: Chrome DevTools Protocol."""

    def __init__(self, binary: str) -> None:
        self._profile = tempfile.TemporaryDirectory()
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def hand_over() -> None:  # the browser reads calls from file 3 and writes answers to file 4
            ends = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        command = [binary, *FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            command,
            preexec_fn=hand_over,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._calls = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call, and wait for the answer; what happens meanwhile is kept in `events`."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") != self._calls:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            self._rest += os.read(self._read, 1 << 16)
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(
        self, file: Path, width: int = 1280, height: int = 900, *, dark: bool = False, phone: bool = False
    ) -> None:
        """Load a page and wait until its scripts are done."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def run(self, expression: str) -> Any:
        """Value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + SECONDS
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never came true: {expression}")
            time.sleep(0.05)

    def key(self, name: str) -> None:
        """Press and release a key."""
        text = {"text": name} if len(name) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press, release or turn the wheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, **({} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}))

    def complaints(self) -> list[str]:
        """Errors, warnings and whatever else was written to the console; exceptions; requests that failed."""
        kinds = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Network.loadingFailed",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event)[:400] for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, file: Path) -> None:
        """The page from top to bottom, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        file.write_bytes(
            base64.b64decode(
                self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)[
                    "data"
                ]
            )
        )

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(20)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()
