"""Headless Chromium, driven for a test; what it asked the network for and complained of is kept."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.edge_network import SECONDS

SCREENSHOTS = Path(__file__).resolve().parents[4] / "build" / "screenshots"
BLANK = "about:blank"
LOCAL = ("about:", "blob:", "chrome:", "chrome-untrusted:", "data:")
"""What nobody is asked for."""
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_TALLEST = 3000


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A driver; the test is skipped where there is no Chromium or nothing to drive it."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="the extra 'browser' is missing")
    from selenium.webdriver.chrome.service import Service

    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    try:
        driver.get(BLANK)  # in place of the browser's own page for new tabs
        yield driver
    finally:
        driver.quit()


@dataclass
class Browser:
    """A page as its reader sees it. Every wait is for a condition, and ends after SECONDS."""

    driver: Any

    async def go(self, url: str) -> None:
        """Open an address, or another view of the same page."""
        await asyncio.to_thread(self.driver.get, url)

    async def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script."""
        return await asyncio.to_thread(self.driver.execute_script, script, *arguments)

    async def until(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression, as soon as it is true."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.wait import WebDriverWait

        def value(driver: Any) -> Any:
            return driver.execute_script(f"return {expression}", *arguments)

        try:
            return await asyncio.to_thread(WebDriverWait(self.driver, SECONDS, 0.05).until, value)
        except TimeoutException:
            shown = await self.run("return document.body.innerText")
            raise AssertionError(f"never true: {expression} {arguments}; shown: {shown}") from None

    async def click(self, selector: str) -> None:
        """Click the first element that is visible."""
        await self._act(selector, lambda element: element.click())

    async def keys(self, selector: str, text: str) -> None:
        """Type into the first element that is visible."""
        await self._act(selector, lambda element: element.send_keys(text))

    async def point(self, selector: str) -> None:
        """Move the pointer over the first element that is visible; it need not take clicks."""
        from selenium.webdriver import ActionChains

        await self._act(
            selector, lambda it: ActionChains(self.driver).move_to_element(it).perform()
        )

    async def press(self) -> None:
        """Click where the pointer is."""
        from selenium.webdriver import ActionChains

        await asyncio.to_thread(ActionChains(self.driver).click().perform)

    async def _act(self, selector: str, act: Callable[[Any], None]) -> None:
        from selenium.common.exceptions import StaleElementReferenceException

        visible = "[...document.querySelectorAll(arguments[0])].find(e => e.checkVisibility())"
        while True:
            element = await self.until(visible, selector)
            # What was found may have been drawn anew meanwhile.
            with suppress(StaleElementReferenceException):
                return await asyncio.to_thread(act, element)

    async def texts(self, selector: str) -> list[str]:
        """The texts of all such elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        found: list[str] = await self.run(script, selector)
        return found

    async def shows(self, selector: str, text: str) -> None:
        """Wait until a visible element has this text in it."""
        await self.until(
            "[...document.querySelectorAll(arguments[0])]"
            ".some(e => e.checkVisibility() && e.textContent.includes(arguments[1]))",
            selector,
            text,
        )

    async def controls(self) -> list[tuple[str, str]]:
        """The name of each control that is visible, as a screen reader tells it, and its HTML."""
        script = (
            "return [...document.querySelectorAll('a,button,input,select,summary,dialog[open]')]"
            ".filter(e => e.checkVisibility())"
        )
        found = await self.run(script)
        return await asyncio.to_thread(
            lambda: [(e.accessible_name, e.get_attribute("outerHTML")[:80]) for e in found]
        )

    async def picture(self, name: str) -> None:
        """Screenshots in light and dark and on a phone; nothing may be wider than the screen."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        for kind in ("light", "dark", "phone"):
            scheme = {
                "name": "prefers-color-scheme",
                "value": "dark" if kind == "dark" else "light",
            }
            await self._tell("Emulation.setEmulatedMedia", {"features": [scheme]})
            if kind == "phone":
                await self._tell("Emulation.setDeviceMetricsOverride", phone)
            wide, own, high = await self.run(
                "const e = document.documentElement;"
                "return [e.scrollWidth, innerWidth, e.scrollHeight]"
            )
            assert wide <= own, f"{name} is too wide: {kind}"
            clip = {"x": 0, "y": 0, "width": own, "height": min(high, _TALLEST), "scale": 1}
            shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
            data = (await self._tell("Page.captureScreenshot", shot))["data"]
            (SCREENSHOTS / f"{name}-{kind}.png").write_bytes(base64.b64decode(data))
        await self._tell("Emulation.clearDeviceMetricsOverride", {})
        await self._tell("Emulation.setEmulatedMedia", {"features": []})

    async def _tell(self, command: str, arguments: dict[str, Any]) -> Any:
        return await asyncio.to_thread(self.driver.execute_cdp_cmd, command, arguments)

    def requested(self) -> set[str]:
        """Every address that was asked of the network since the last time."""
        messages = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return {
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
            and not message["params"]["request"]["url"].startswith(LOCAL)
        }

    def complaints(self) -> list[str]:
        """What the console says since the last time, besides that requests failed."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["source"] != "network"]
