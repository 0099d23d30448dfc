"""The page: what it shows, that hostile text stays text, and that a real browser runs and fetches nothing."""

from __future__ import annotations

import html.parser
import http.server
import re
import shutil
import subprocess
import threading
from dataclasses import replace

import pytest

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.report.html.environment import MAX_ROWS
from memory_audit.report.html.page import MAX_CARDS, MAX_EVENTS
from memory_audit.report.summary import removed_of
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_lineage import with_lineage
from tests.whole import page_of

VOID = {"meta", "link", "img", "br", "hr", "input", "base"}


class Outline(html.parser.HTMLParser):
    """Collects tags and attributes, and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.stack, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.stack == []
    return parser


ALL_HOSTILE = [*markup("http://attacker.example/"), BIDI, ANSI, ZERO_WIDTH, LONG, "\ud800"]


def test_the_verdict_comes_first_and_everything_asked_for_is_there():
    page = re.sub(r"<style>.*?</style>", "", page_of(sample_result()), flags=re.DOTALL)
    text = "".join(outline(page).text)
    parts = [
        "Removing 8 memories ends the harm in 6 of 8 events that did harm on replay; 1 event did no harm on replay",
        "8→2of 9 replayed events do harm, before and after",
        "Memories to remove, those behind most events first",
        "northwind-support",
        "Without the removed memories",
        "Harmful events",
        "Influence against inconsistency",
        "Memory graph",
        "Benign probes",
        "harbor-clinic",
        "replay budget of 400 was spent",
        "9f2c4e7ab1d05836c7e1f0a94d3b82656a7f1c0de4b95b38d1726ae0c4f3d219",
        "all-MiniLM-L6-v2@sha256:53aa51",
        "297,113",
        "An audit removes nothing by itself: memaudit purge does.",
    ]
    assert [part for part in parts if part not in text] == []
    assert text.index(parts[0]) < text.index(parts[1]) < text.index(parts[3])


def test_each_removed_entry_has_a_card_with_the_counterfactual_pair():
    page = page_of(sample_result())
    cards = re.findall(r'<article class="card".*?</article>', page, re.DOTALL)
    assert len(cards) == 8
    card = next(card for card in cards if "tick-4127" in card.split("</h4>")[0])
    for part in (
        "user:m.keller",
        "double charges",
        "ledger service is deprecated",
        "I have sent you a copy",
        "Score <small>DS</small>",
        "Influence <small>CMIS</small>",
        "Inconsistency <small>CAS</small>",
    ):
        assert part in card


@pytest.mark.parametrize(
    ("verdict", "cause"), [("memory is not the cause", "no memory"), ("not examined", "not known")]
)
def test_no_memory_is_said_to_be_the_cause_only_where_replays_say_so(verdict, cause):
    result = sample_result()
    events = tuple(replace(event, verdict=verdict, causes=()) for event in result.tenants[0].events)
    page = page_of(replace(result, tenants=(replace(result.tenants[0], events=events),)))
    assert page.count(f"<dt>Caused by</dt><dd>{cause}</dd>") == len(events)


def test_the_same_result_gives_the_same_bytes():
    assert page_of(sample_result()) == page_of(sample_result())


def test_every_link_leads_to_a_place_on_the_page():
    attributes = outline(page_of(sample_result())).attributes
    ids = [value for _, name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = {value for _, name, value in attributes if name == "href"}
    assert links
    assert links <= {f"#{name}" for name in ids}


@pytest.mark.parametrize(("table", "columns"), [("lead", 5), ("overview", 6), ("probes", 4), ("derived", 4)])
def test_a_narrow_screen_names_each_cell_of_a_stacked_table(table, columns):
    page = page_of(with_lineage("quarantine")[0])
    head = re.search(rf'<table class="stack {table}">.*?<thead><tr>(.*?)</tr>', page, re.DOTALL)
    headings = re.findall(r"<th[^>]*>(.*?)</th>", head.group(1))
    assert len(headings) == columns
    for place, heading in enumerate(headings[1:], start=2):
        assert f'.{table} td:nth-child({place})::before {{ content: "{heading}: "' in page


def test_unknown_values_read_unknown():
    result = sample_result()
    event = replace(result.tenants[0].events[0], harm_before=None, output_before=None, harm_after=None)
    page = page_of(replace(result, tenants=(replace(result.tenants[0], events=(event,)),)))
    assert "harm unknown → unknown" in page
    assert "no event replayed" in page


def test_hostile_text_adds_no_tag_and_no_attribute():
    calm, hostile = outline(page_of(sample_result())), outline(page_of(hostile_result(ALL_HOSTILE)))
    assert set(hostile.tags) <= set(calm.tags) | {"p"}
    assert not {"script", "img", "iframe", "link", "image", "base", "object", "foreignobject"} & set(hostile.tags)
    assert not [name for _, name, _ in hostile.attributes if name.startswith("on") or name in ("src", "xlink:href")]
    assert all(value.startswith("#t") for _, name, value in hostile.attributes if name == "href")
    assert {(tag, name) for tag, name, _ in hostile.attributes} <= {(tag, name) for tag, name, _ in calm.attributes}
    assert "style" not in {name for _, name, _ in hostile.attributes}


def test_hidden_characters_are_visible_also_in_titles_and_attributes():
    page = page_of(hostile_result([BIDI, ANSI, ZERO_WIDTH, "\ud800"]))
    assert '<span class="u">U+202E</span>' in page
    assert "&lt;U+202E&gt;" in page
    assert not {"\u202e", "\u202c", "\x1b", "\x07", "\u200b", "\ufeff", "\ud800", "\U000e0041"} & set(page)
    page.encode()


def test_text_of_templates_is_not_evaluated():
    page = page_of(hostile_result(["{{ 7 * 7 }}{% include 'x' %}"]))
    assert "{{ 7 * 7 }}" in page


def test_the_policy_forbids_everything_but_inline_style():
    attributes = outline(page_of(sample_result())).attributes
    policy = next(value for tag, name, value in attributes if tag == "meta" and name == "content")
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_a_large_result_is_bounded_and_says_what_is_left_out():
    result = sample_result()
    tenant = result.tenants[0]
    score = removed_of(tenant)[0]
    scores = tuple(replace(score, entry_id=f"m-{i}", rank=i + 1) for i in range(MAX_CARDS + 40))
    removal = RemovalSet(attributed={score.entry_id: LONG for score in scores})
    events = tuple(
        replace(tenant.events[0], event_id=f"e-{i}", output_before=LONG, query=LONG) for i in range(MAX_EVENTS + 5)
    )
    big = replace(result, tenants=(replace(tenant, scores=scores, removal=removal, events=events, edges=()),))
    page = page_of(big)
    assert "40 more memories to remove, not shown here" in page
    assert "5 more events, not shown here" in page
    assert len(page) < 3_000_000


def test_an_empty_result_is_a_page():
    page = page_of(replace(sample_result(), tenants=(), config={}, models={}, counters={}))
    assert "No harmful event was given" in page
    outline(page)


class Recording(http.server.ThreadingHTTPServer):
    hits: list[str]


class Recorder(http.server.BaseHTTPRequestHandler):
    server: Recording

    def do_GET(self):
        self.server.hits.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object):
        pass


@pytest.fixture
def attacker():
    server = Recording(("127.0.0.1", 0), Recorder)
    server.hits = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def browse(chromium, page, folder):
    """Load a page in headless Chromium and return its DOM after scripts had time to run."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --virtual-time-budget=2000 --dump-dom"
    command = [chromium, *flags.split(), f"--user-data-dir={folder / 'profile'}", path.as_uri()]
    return subprocess.run(command, capture_output=True, check=True, timeout=100).stdout.decode()


@pytest.mark.tool("chromium")
def test_a_real_browser_runs_no_script_and_fetches_nothing(attacker, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here: install it to check the page in a real browser")
    url = f"http://127.0.0.1:{attacker.server_port}/"
    (tmp_path / "bare").mkdir()
    (tmp_path / "report").mkdir()
    bare = "<!doctype html><title>bare</title>" + "".join(markup(url)[:2])
    assert "PWNED" in browse(chromium, bare, tmp_path / "bare").partition("</title>")[0]
    assert attacker.hits, "the control page must reach the server, or this test proves nothing"
    attacker.hits.clear()
    dom = browse(chromium, page_of(hostile_result(markup(url))), tmp_path / "report")
    assert dom.partition("</title>")[0].rpartition("<title>")[2].startswith("Memory audit of ")
    assert "The run</h2>" in dom
    assert attacker.hits == []


def test_a_cut_list_keeps_the_event_with_harm_left_and_its_cause_names_it():
    result = sample_result()
    tenant = result.tenants[0]
    first, second, *_ = [score.entry_id for score in removed_of(tenant)]
    cleared = replace(tenant.events[0], causes=(first,))
    events = tuple(replace(cleared, event_id=f"e-{i:03}") for i in range(MAX_EVENTS + 4))
    stays = replace(cleared, event_id="e-last", verdict="not cleared", causes=(second,))
    page = page_of(replace(result, tenants=(replace(tenant, events=(*events, stays)),)))
    assert "<code>e-last</code>" in page
    cards = {
        card.split("</h4>")[0]: card for card in re.findall(r'<article class="card".*?</article>', page, re.DOTALL)
    }
    of = {
        name: next(card for head, card in cards.items() if f"<code>{name}</code>" in head) for name in (first, second)
    }
    assert f"{MAX_EVENTS + 4} events it helped to cause" in of[first]  # also those with no place on the page
    assert "1 event it helped to cause" in of[second]
    links = {value for _, name, value in outline(page).attributes if name == "href"}
    assert links <= {f"#{value}" for _, name, value in outline(page).attributes if name == "id"}


def test_a_probe_that_loses_its_answer_is_not_among_those_left_out():
    result = sample_result()
    tenant = result.tenants[0]
    probes = tuple(replace(tenant.probes[0], event_id=f"p-{i}") for i in range(MAX_ROWS))
    lost = replace(tenant.probes[0], event_id="p-lost", kept=False)
    page = page_of(replace(result, tenants=(replace(tenant, probes=(*probes, lost)),)))
    assert "<code>p-lost</code>" in page


def test_doubt_below_the_threshold_is_not_coloured_as_harm():
    result = sample_result()
    tenant = result.tenants[0]
    doubted = replace(tenant.events[0], harm_before=0.5, harm_after=0.3)
    page = page_of(replace(result, tenants=(replace(tenant, events=(doubted,)),)))
    assert '<span class="harm bad">harm 0.5</span>' in page
    assert '<span class="harm good">harm 0.3</span>' in page


def test_total_harm_is_no_power_of_ten():
    result = sample_result()
    tenant = result.tenants[0]
    events = tuple(replace(tenant.events[0], event_id=f"e-{i}", harm_after=0.25) for i in range(1499))
    page = page_of(replace(result, tenants=(replace(tenant, events=events),)))
    assert "<b>1,499.0<i>→</i>374.8</b>" in page
    assert "<b>1,499<i>→</i>0</b>" in page


def test_an_event_that_a_spent_budget_left_open_is_explained_as_such():
    assert "left open when the budget of replays was spent" in page_of(sample_result())


def test_a_page_of_invisible_text_stays_small():
    result = sample_result()
    hidden = "\u200b\u200c" * 2_000
    tenants = tuple(
        replace(
            tenant,
            events=tuple(replace(e, query=hidden, output_before=hidden, output_after=hidden) for e in tenant.events),
        )
        for tenant in result.tenants
    )
    calm, page = page_of(result), page_of(replace(result, tenants=tenants))
    assert len(page) < len(calm) + 400_000
