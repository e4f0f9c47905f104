"""The page in the system's Chromium fills while a run goes on, also after the page was killed."""

import re
import urllib.parse

import pytest

from headstart.pipeline.config import make_config
from headstart.pipeline.run import run_config
from tests.live.helpers import CHROMIUM, DRIVER, chromium, deployment, fill, page, seen, write_event

pytest.importorskip("starlette")
pytest.importorskip("selenium", reason="selenium is not installed")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver found: no page is looked at"
)


@pytest.fixture(scope="module")
def driver():
    with chromium() as one:
        yield one


def complaints(driver):
    """What the browser logged, but for the connection that a test cut itself."""
    logged = [entry["message"] for entry in driver.get_log("browser")]
    return [text for text in logged if "net::ERR" not in text]


def test_a_run_is_seen_as_it_happens_across_a_kill_and_then_its_report(driver, tmp_path):
    run = tmp_path / "run"
    write_event(run, "start", pipeline="<b>Fed3R</b> + FedAvg-4", clients=9)
    write_event(run, "point", phase=0, round=0, accuracy=0.5, up=1000, down=2000)
    with page(run, killed=True) as address:
        driver.get(address)
        assert "<b>Fed3R</b> + FedAvg-4" in seen(driver, "50%")
        write_event(run, "point", phase=1, round=1, accuracy=0.75, up=3000, down=4000)
        write_event(run, "progress", work="FedAvg-4", done=1, of=4)
        assert "FedAvg-4: 1 of 4" in seen(driver, "75%")
        port = urllib.parse.urlsplit(address).port
    seen(driver, "not connected; trying again")
    write_event(run, "point", phase=1, round=2, accuracy=0.875, up=5000, down=6000)
    with page(run, port=port):
        text = seen(driver, "87.5%")
        assert re.search(r"Round\s+2\b", text)
        assert text.count("running") == 1  # one card, though it was sent again
        points = driver.execute_script(
            "return document.querySelector('polyline').getAttribute('points').split(' ').length"
        )
        assert points == 3
        (run / "report.html").write_text(
            "<h1>What came of it</h1><script>document.title=1</script>"
        )
        write_event(run, "finished", accuracy=0.9)
        seen(driver, "Report of run")
        driver.switch_to.frame(driver.find_element("tag name", "iframe"))
        seen(driver, "What came of it")
        driver.switch_to.default_content()
    bad = [text for text in complaints(driver) if "Blocked script execution" not in text]
    assert [text for text in bad if "Content Security Policy" not in text] == []


def test_a_deployment_with_a_refused_node_fits_a_phone(driver, tmp_path):
    server = deployment(tmp_path / "fed")
    fill(server / "ledger", "ann", refused=["cid"])
    write_event(server / "output", "start", pipeline="fed3r", members=0, wanted=4, deadline=600.0)
    write_event(server / "output", "upload", client="ann", members=1)
    write_event(server / "output", "failure", client="cid", code="shape", text="expected 6, got 3")
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with page(tmp_path / "fed") as address:
        driver.get(address)
        text = seen(driver, r"(?s)refused: expected 6, got 3.*fed: ledger")
        assert "silent: no answer yet" in text
        assert "waits until" in text
        wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
    assert complaints(driver) == []
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_private_run_and_its_report_in_place(driver, tmp_path):
    split = {"name": "dirichlet", "clients": 6, "alpha": 1.0}
    config = {
        "data": "digits",
        "partition": split,
        "pipeline": "fedncm",
        "private": {"epsilon": 8.0},
    }
    run_config(make_config(config), tmp_path / "run")
    with page(tmp_path / "run") as address:
        driver.get(address)
        text = seen(driver, r"(?s)ε spent.*Report of run")
        assert "only what was released is shown" in text
        assert "client-" not in text
        driver.switch_to.frame(driver.find_element("tag name", "iframe"))
        seen(driver, "Differential privacy|ε = 8")
        driver.switch_to.default_content()
    assert complaints(driver) == []
