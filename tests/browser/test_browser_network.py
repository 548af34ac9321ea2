"""network.js in a browser, under the pages' own policy: on WebAssembly, and on WebGPU where an adapter answers, here one in software."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import launched
from network_cases import write_cases
from nodejs import SUPPORT
from tab_site import TabSite
from whole_networks import GOLDEN, write_whole

LOGITS_OFF = 2e-6  # of the largest logit
VALUES_OFF = GPU_OFF = 1e-5  # the same on WebGPU
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("cases")
    return folder, {case["kind"]: case for case in write_cases(folder)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TabSite]:
    place = TabSite(tmp_path_factory.mktemp("site"))
    place.start()
    yield place
    place.stop()


def rows(browser: Any, site: TabSite, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """What the networks of a folder answer in a page of the site."""
    return list(in_page(browser, site, folder, "await tryNetworks(network, read, options)", options))


def in_page(browser: Any, site: TabSite, folder: Path, call: str, options: Any) -> Any:
    """What an expression of try_networks.mjs gives in a page of the site."""
    page = browser.new_page()
    page.set_default_timeout(300_000)
    page.route("**/cases/*", lambda route: route.fulfill(body=(folder / route.request.url.rpartition("/")[2]).read_bytes()))
    script = (SUPPORT / "try_networks.mjs").read_bytes()
    page.route("**/web/try_networks.mjs", lambda route: route.fulfill(body=script, content_type="text/javascript"))
    page.goto(f"{site.url}/web/progress/")
    found = page.evaluate(
        f"""async (options) => {{
            const [network, core] = [await import("/web/network.js"), await import("/web/core.js")];
            const {{ tryNetworks, hashWhole }} = await import("/web/try_networks.mjs");
            const read = async (name) => new Uint8Array(await (await fetch(`/cases/${{name}}`)).arrayBuffer());
            return JSON.stringify({call});
        }}""",
        options,
    )
    page.close()
    return json.loads(found)


def test_trained_networks_answer_as_in_pytorch(site: TabSite, cases: tuple[Path, dict[str, Any]]) -> None:
    with launched() as browser:
        found = rows(browser, site, cases[0])
    assert [row["kind"] for row in found] == list(cases[1])
    for row in found:
        assert row["backend"] == "wasm"
        assert "WebGPU adapter" in row["fallback"]
        assert row["logitsOff"] <= LOGITS_OFF * cases[1][row["kind"]]["scale"]
        assert row["valuesOff"] <= VALUES_OFF
        assert row["sameAlone"]
        assert "self-test on wasm: values are off" in row["refused"]


def test_networks_in_whole_numbers_evaluate_to_the_golden_bits(site: TabSite, tmp_path: Path) -> None:
    write_whole(tmp_path)
    with launched() as browser:
        call = 'await hashWhole(core, network, "/web/azq.wasm", read, options)'
        assert in_page(browser, site, tmp_path, call, list(GOLDEN)) == GOLDEN


@pytest.mark.release
def test_on_a_gpu_they_do_too_or_are_refused_and_one_in_software_is_not_taken_unasked(
    site: TabSite, cases: tuple[Path, dict[str, Any]]
) -> None:
    with launched(*SOFTWARE_GPU) as browser:
        found = rows(browser, site, cases[0], backend="webgpu")
        used = [row for row in found if "failed" not in row]
        assert {row["kind"] for row in used} >= {"resnet", "outcomes", "transformer"}
        assert all("self-test on webgpu" in row["failed"] for row in found if row not in used)
        for row in used:
            assert row["backend"] == "webgpu"
            assert row["logitsOff"] <= GPU_OFF * cases[1][row["kind"]]["scale"]
            assert "self-test on webgpu" in row["refused"]
        assert {row["backend"] for row in rows(browser, site, cases[0])} == {"wasm"}
