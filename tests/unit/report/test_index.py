"""A run of many tenants: an index, a page each, hostile text in every field, and what a real browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from dataclasses import replace

import pytest

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.report.html import FEW, report_files
from memory_audit.report.html.page import COLUMNS, MAX_INDEX, render_index
from memory_audit.report.summary import concern, headline
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_html import attacker, browse, outline  # noqa: F401 - a fixture
from tests.whole import summed

COUNT = FEW + 4


def many(result, count=COUNT):
    """A run whose first two tenants are those of a result, and the others copies of which nothing is found."""
    first, second = result.tenants
    quiet = tuple(replace(event, verdict="not reproduced", causes=()) for event in first.events)
    still = replace(first, removal=RemovalSet(), events=quiet, probes=(), texts=(), not_examined=())
    rest = (replace(still, tenant=f"{first.tenant}-{number:04}") for number in range(count - 2))
    tenants = sorted((first, replace(second, cost={"replays": 1_234}), *rest), key=lambda tenant: tenant.tenant)
    return replace(result, tenants=tuple(tenants))


def written(result):
    return dict(report_files(*summed(result)))


def rows_of(index):
    return re.findall(
        r"<tr( class=\"need\")?><td>(.*?)</td><td data-v=\"(\d+)\"><span class=\"badge \w+\">(.*?)<", index
    )


def test_few_tenants_are_one_page_and_more_an_index_with_a_page_each():
    few = replace(many(sample_result()), tenants=many(sample_result()).tenants[:FEW])
    assert list(written(few)) == ["report.html"]
    files = written(many(sample_result()))
    assert list(files) == [*(f"report/{number:04}.html" for number in range(COUNT)), "report.html"]
    assert files == written(many(sample_result()))


def test_every_link_leads_to_a_page_and_back():
    files = written(many(sample_result()))
    links = re.findall(r'<td><a href="(report/\d+\.html)">', files["report.html"])
    assert sorted(links) == sorted(set(files) - {"report.html"})
    for name, page in files.items():
        if name != "report.html":
            assert '<a href="../report.html">← All 14 tenants</a>' in page
            assert "<script" not in page
            outline(page)


def test_those_that_need_a_person_come_first_each_with_its_figures():
    index = written(many(sample_result()))["report.html"]
    rows = rows_of(index)
    assert [words for _, _, _, words in rows[:3]] == ["harm remains", "to remove", "not reproduced"]
    assert [bool(need) for need, _, _, _ in rows] == [True, True] + [False] * (COUNT - 2)
    assert "2 of 14 need a person, listed first" in index
    row = next(line for line in index.splitlines() if "harbor-clinic" in line)
    assert re.findall(r'<td class="num"[^>]*>(.*?)</td>', row) == ["38", "6", "4 → 2", "5", "0", "1,234"]


def test_a_run_writes_the_pages_of_those_that_need_a_person():
    files = dict(report_files(*summed(many(sample_result())), every=False))
    linked = re.findall(r'<td><a href="(report/\d+\.html)">', files["report.html"])
    assert sorted(files) == ["report.html", *sorted(linked)]
    assert len(linked) == 2
    assert "<code>memaudit report RUN --tenant T --format html</code> shows one tenant" in files["report.html"]


def test_a_tenant_that_failed_is_first_and_says_why_and_has_no_page():
    result, read = summed(many(sample_result()))
    failed = replace(result.tenants[5], failure="its log <b>was</b> changed", part="")
    result = replace(result, tenants=(*result.tenants[:5], failed, *result.tenants[6:]))
    files = dict(report_files(result, read))
    assert "report/0005.html" not in files
    first = rows_of(files["report.html"])[0]
    assert (first[1], first[3]) == (failed.tenant, "not audited")
    assert "<small>its log &lt;b&gt;was&lt;/b&gt; changed</small>" in files["report.html"]
    assert "1 tenant could not be audited." in headline(result)[1]
    assert concern(failed).needs_person


def test_the_policy_allows_the_one_script_alone():
    index = written(many(sample_result()))["report.html"]
    (script,) = re.findall(r"<script>(.*?)</script>", index, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', index).group(1)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def test_hostile_text_adds_no_tag_and_no_attribute_to_index_or_page():
    payloads = [*markup("http://attacker.example/"), BIDI, ANSI, ZERO_WIDTH, LONG]
    calm, hostile = written(many(sample_result())), written(many(hostile_result(payloads)))
    for name in ("report.html", "report/0000.html"):
        known, seen = outline(calm[name]), outline(hostile[name])
        assert set(seen.tags) <= set(known.tags) | {
            "p",
            "article",
            "ul",
            "li",
            "dl",
            "dt",
            "dd",
            "h4",
            "h5",
            "details",
        } | {tag for page in calm.values() for tag in outline(page).tags}
        assert {tag for tag in seen.tags if tag == "script"} == ({"script"} if name == "report.html" else set())
        assert not {"img", "iframe", "link", "base", "object"} & set(seen.tags)
        assert not [n for _, n, value in seen.attributes if n.startswith("on") or n in {"src", "style"}]
        hrefs = {value for _, n, value in seen.attributes if n == "href"}
        assert all(re.fullmatch(r"#t0(-[me]\d+)?|report/\d{4}\.html|\.\./report\.html", href) for href in hrefs)
    assert not {"\u202e", "\x1b", "\u200b", "\ufeff"} & set("".join(hostile.values()))


def test_names_of_files_are_made_here_and_quoted():
    files = dict(report_files(*summed(many(sample_result())), "a b#.html", "a b#-tenants"))
    assert "a b#-tenants/0000.html" in files
    assert 'href="a%20b%23-tenants/0000.html"' in files["a b#.html"]
    assert 'href="../a%20b%23.html"' in files["a b#-tenants/0000.html"]


def test_an_index_is_bounded_and_says_what_is_left_out(monkeypatch):
    monkeypatch.setattr("memory_audit.report.html.page.MAX_INDEX", 5)
    index = render_index(summed(many(sample_result()))[0], {})
    assert len(rows_of(index)) == 5
    assert f"{COUNT - 5} more tenants, not shown here" in index
    assert MAX_INDEX >= 1_000


def test_a_thousand_tenants_take_less_than_a_megabyte():
    result = summed(many(sample_result(), 1_000))[0]
    index = render_index(result, {tenant.tenant: "report/0000.html" for tenant in result.tenants})
    assert len(rows_of(index)) == 1_000
    assert len(index.encode()) < 1_000_000


def test_a_narrow_screen_names_each_cell():
    index = written(many(sample_result()))["report.html"]
    for place, (name, _) in enumerate(COLUMNS[1:], start=2):
        assert f'.index td:nth-child({place})::before {{ content: "{name}: "' in index


@pytest.mark.tool("chromium")
def test_a_real_browser_runs_the_one_script_and_fetches_nothing(attacker, tmp_path):  # noqa: F811
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here: install it to check the page in a real browser")
    url = f"http://127.0.0.1:{attacker.server_port}/"
    files = written(many(hostile_result(markup(url))))
    (tmp_path / "index").mkdir()
    dom = browse(chromium, files["report.html"], tmp_path / "index")
    assert ">2 shown</output>" in dom  # of those that need a person
    assert dom.count('hidden=""') == COUNT - 2
    assert dom.count('<button type="button">') == len(COLUMNS)
    assert dom.partition("</title>")[0].rpartition("<title>")[2].startswith("Memory audit of ")
    assert attacker.hits == []
    (tmp_path / "sorted").mkdir()
    free = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", written(many(sample_result()))["report.html"]
    )
    click = "<script>for (const n of [7, 0]) document.querySelectorAll('th button')[n].click()</script></body>"
    dom = browse(chromium, free.replace("</body>", click), tmp_path / "sorted")
    names = [
        re.sub("<[^>]*>", "", name) for _, name, _, _ in rows_of(dom.replace('hidden=""', "").replace("<tr >", "<tr>"))
    ]
    assert names == sorted(names)
    assert 'aria-sort="ascending"' in dom
