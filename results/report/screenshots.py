"""Pictures of a report's page for docs, as a headless Chromium shows it: wide, narrow and dark.

python results/report/screenshots.py REPORT/index.html docs/images
"""

import sys
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
PICTURES = {  # name: (width, height, colours, what is scrolled to)
    "report-wide": (1280, 1100, "light", "question"),
    "report-dark": (1280, 1100, "dark", "figures"),
    "report-narrow": (390, 844, "light", "question"),
    "report-narrow-figures": (390, 844, "dark", "figures"),
}


def main(page: Path, out: Path) -> None:
    options = ChromeOptions()
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            for name, (width, height, colours, place) in PICTURES.items():
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                driver.get(page.resolve().as_uri())
                script = "document.documentElement.dataset.theme = arguments[0];"
                script += "document.documentElement.style.scrollBehavior = 'auto';"
                script += "if (arguments[1] !== 'question') document.getElementById(arguments[1]).scrollIntoView();"
                driver.execute_script(script, colours, place)
                driver.save_screenshot(str(out / f"{name}.png"))
        finally:
            driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
