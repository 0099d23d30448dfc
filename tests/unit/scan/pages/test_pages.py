"""Pages of a scan: what they say, hostile text in every field, commands, and what a real browser makes of them."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace

import pytest

from memory_audit.jobs.scan.scan_pages import write_pages
from memory_audit.scan.finding import Evidence
from memory_audit.scan.pages import INDEX
from memory_audit.scan.pages.commands import Places, commands
from memory_audit.scan.pages.writing import headline, page_files
from tests.unit.report.hostile import BIDI, markup
from tests.unit.scan.pages.world import PLACES, world
from tests.unit.scan.sample import finding


def hostile(payload):
    """The world with a payload in every text that somebody else wrote."""
    result, read, _ = world()
    rename = {name: f"{place}{payload}"[:200] for place, name in enumerate(read)}

    def poisoned(known):
        one = known.finding
        evidence = (Evidence(label=payload, value=payload + "A" * 65_000, entry_id=payload),)
        return replace(known, finding=replace(one, tenant=rename[one.tenant], message=payload, evidence=evidence))

    tenants = tuple(
        replace(one, tenant=rename[one.tenant], findings=tuple(map(poisoned, one.findings))) for one in result.tenants
    )
    memories = {
        rename[name]: replace(
            one, tenant=rename[name], lineage=None, graph=None,
            entries=[
                replace(entry, request=payload, response=payload + "A" * 65_000, principal=payload[:200],
                        metadata={payload[:200]: payload})
                for entry in one.entries
            ],
        )
        for name, one in read.items()
    }  # fmt: skip
    return replace(result, source=payload, tenants=tenants), memories


def test_every_link_leads_to_what_is_there():
    result, read, earlier = world()
    pages = dict(page_files(result, read.__getitem__, PLACES, earlier))
    for name, page in pages.items():
        for href in re.findall(r'href="([^"#]*)(?:#([fm]\d+))?"', page):
            target = f"entries/{href[0]}" if name.startswith("entries/") and href[0] else href[0] or name
            target = target.replace("entries/../", "")
            if href[0] or href[1]:
                assert target in pages, (name, href)
                assert not href[1] or f'id="{href[1]}"' in pages[target]
    assert list(pages)[-1] == INDEX


def test_the_first_line_tells_of_copies():
    result, _, _ = world()
    tone, sentence = headline(result)
    assert re.match(r"\d+\.\d % of the memories say what another one says\. \d+ findings in 330 memories", sentence)
    assert tone in {"warn", "bad"}


@pytest.mark.parametrize("payload", [*markup("http://127.0.0.1:9/"), BIDI])
def test_hostile_text_is_inert(payload):
    result, read = hostile(payload)
    for name, page in page_files(result, read.__getitem__, PLACES):
        bare = re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
        assert not re.search(r"<(img|iframe|base|link|image)\b|<script", bare), name
        assert page.count("<script") == page.count("</script>") == (2 if name.startswith("findings") else 1)
        assert "\u202e" not in page
        assert re.fullmatch(r"(entries/\d{4}|findings|index)\.html", name)


def test_a_command_names_what_it_is_about_and_no_name_that_hides_something():
    one = finding(entry_ids=("it's; rm -rf ~",))
    forget = next(command.line for command in commands(one, PLACES) if " forget " in command.line)
    assert shlex.split(forget)[-3:] == ["--", "store", "it's; rm -rf ~"]
    assert not any(" forget " in command.line for command in commands(finding(entry_ids=(BIDI,)), PLACES))
    assert [shlex.split(line)[1] for _, line in commands(one, Places("run", None))] == ["accept"]


@pytest.mark.tool("chromium")
def test_a_person_finds_a_memory_in_a_real_browser(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium here")
    result, read, earlier = world()
    index = write_pages(result, read.__getitem__, tmp_path / "good", PLACES, earlier)
    bad, poisoned = hostile(markup("http://127.0.0.1:9/")[0])
    trap = write_pages(bad, poisoned.__getitem__, tmp_path / "bad", PLACES)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], color_scheme="dark")
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(index.as_uri())
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
        page.get_by_role("link", name="Findings", exact=True).click()
        page.get_by_label("Search").fill("another turn")
        page.get_by_label("Severity").select_option("medium")
        rows = page.locator("#list tbody tr")
        assert 0 < rows.count() < 50
        assert set(page.locator("#list .sev").all_text_contents()) == {"medium"}
        name = rows.first.locator("code").text_content()
        rows.first.get_by_role("link").press("Enter")
        page.wait_for_url("**/entries/*")
        card = page.locator(".entry:has(.finding:target)")
        assert card.locator("h2 code").text_content() == name
        card.get_by_label("Copy the id of this memory").click()
        assert page.evaluate("navigator.clipboard.readText()") == name
        assert page.pdf().startswith(b"%PDF")
        for path in (trap, trap.with_name("findings.html"), trap.parent / "entries/0001.html"):
            page.goto(path.as_uri())
            assert page.title() != "PWNED"
        assert said == []
        browser.close()
