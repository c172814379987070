# SPDX-License-Identifier: BSD-3-Clause
"""Chromium without a window, driven over its DevTools protocol through two pipes; needs nothing but Python.

    with Browser() as browser:
        page = browser.open("report.html", width=1280, dark=True)
        page.evaluate("document.title")
        png = page.screenshot(height=900)
"""
import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run --no-default-browser-check "
    "--disable-background-networking --disable-component-update --disable-extensions --disable-sync --mute-audio --force-color-profile=srgb"
).split()
PATIENCE = 60  # seconds for an answer


def find():
    """Path of Chromium, or None. CHROMIUM overrides it."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Failure(Exception):
    pass


class Browser:
    def __init__(self):
        program = find()
        if program is None:
            raise Failure("there is no chromium here; on Debian: apt-get install --no-install-recommends chromium")
        self.profile = tempfile.TemporaryDirectory(prefix="ddp-doctor-browser-", ignore_cleanup_errors=True)
        its_input, self.to = os.pipe()
        self.back, its_output = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output}', "-", program, *FLAGS, "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(its_input, its_output), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True, env={**os.environ, "HOME": self.profile.name})
        os.close(its_input)
        os.close(its_output)
        self.number = 0
        self.received = b""
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stderr.close()
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def _message(self, deadline):
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.back, 1 << 20) if ready else None
            if not ready:
                raise Failure(f"no answer from chromium in {PATIENCE} s")
            if not chunk:
                raise Failure("chromium ended: " + self.process.stderr.read().decode(errors="replace")[-2000:])
            self.received += chunk
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        request = {"id": number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._message(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise Failure(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def wait_for(self, method, session):
        deadline = time.monotonic() + PATIENCE
        while True:
            for event in self.events:
                if event["method"] == method and event.get("sessionId") == session:
                    return
            message = self._message(deadline)
            if "method" in message:
                self.events.append(message)

    def open(self, file, width, height=900, dark=False, scripts=True):
        return Page(self, file, width, height, dark, scripts)


class Page:
    """A page as it is displayed: `trouble` are errors on its console, `requests` its network requests."""

    def __init__(self, browser, file, width, height, dark, scripts):
        self.browser, self.width = browser, width
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.events = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        browser.wait_for("Page.loadEventFired", self.session)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failure(answer["exceptionDetails"].get("exception", {}).get("description", str(answer["exceptionDetails"])))
        return answer["result"].get("value")

    @property
    def requests(self):
        return [e["params"]["request"]["url"] for e in self.browser.events if e["method"] == "Network.requestWillBeSent"]

    @property
    def trouble(self):
        found = []
        for event in self.browser.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"]["text"])
            if event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("warning", "error"):
                found.append(parameters["entry"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("warning", "error"):
                found.append(str(parameters["args"]))
        return found

    def screenshot(self, height, scale=1):
        """The top of the page, as a PNG."""
        clip = {"x": 0, "y": 0, "width": self.width, "height": height, "scale": scale}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"])

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
