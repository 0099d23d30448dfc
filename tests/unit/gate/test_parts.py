"""Which parts of a free text the gate judges."""

from __future__ import annotations

import html
import re
import time
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.gate.parts import PartKind, parts
from memory_audit.gate.renderings import readings
from memory_audit.gate.values import NOTHING_SEEN, is_plain


def test_prose_is_judged_by_what_identifies_something() -> None:
    text = (
        "Hi Bob, pay GB29NWBK60161331926819 (ref HGK137803) or see https://bit.ly/sUf7tOJ, mail a.b@x.com. Thanks 42!"
    )
    assert parts(text, "prose") == ["https://bit.ly/sUf7tOJ", "a.b@x.com", "GB29NWBK60161331926819", "HGK137803"]


def test_prose_knows_web_addresses_without_scheme() -> None:
    assert parts("look at evil.com/a and www.evil-2.org.", "prose") == ["www.evil-2.org", "evil.com/a"]


def test_dates_and_times_identify_nothing() -> None:
    assert parts("due 2024-05-20 at 2024-05-21 10:00, in 2 weeks, for 1200", "prose") == []


def test_words_are_those_of_three_letters_or_more() -> None:
    assert parts("Booking a room at the Riverside View", "words") == ["Booking", "room", "the", "Riverside", "View"]


def test_quotes_are_runs_of_three_words_whatever_stands_between_them() -> None:
    assert parts('Say "**Riverside** View, Hotel!" it\'s', "quotes") == [
        "say riverside view", "riverside view hotel", "view hotel its",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["prose", "words", "quotes"])
@given(text=st.text(st.characters(exclude_characters=["\u3002", *map(chr, NOTHING_SEEN)]), max_size=200))
def test_every_part_is_in_the_text_once(kind: PartKind, text: str) -> None:
    found = parts(text, kind)
    assert len(found) == len(set(found))
    assert all(found)
    if kind != "quotes":
        assert all(part in text for part in found)


@given(before=st.text(alphabet=" abc.,\n", max_size=20), after=st.sampled_from(["", ".", ", ok", "\nyes", ")"]))
def test_an_address_is_found_wherever_it_stands(before: str, after: str) -> None:
    assert "mark.black-2134@gmail.com" in parts(f"{before} mark.black-2134@gmail.com{after}", "prose")


@pytest.mark.parametrize(
    "address",
    [
        "HTTPS://evil.com/steal", "Http://EVIL.com", "ftp://evil.com/a", "//evil.com/a", "-https://evil.com/a",
        "_https://evil.com/a_", "_evil.com_", "evil.com-", "...evil.com", "see/https://evil.com", "evil.рф/a",
        "xhttps://evil.com", "WWW.EVIL.COM/a", "https:/evil.com/pay", "https:\\/evil.com/pay", "https:\\evil.com",
        "https:evil.com", "@https:/evil.com", "_https:/evil.com_", "evil\u3002com/pay", "evil\u3002co\u3002uk",
        "evil\ufe0f.com", "evil.\u034fcom", "attacker!@evil.com", "@bob@evil.com", "bob@x.com@evil.com", "@evil.com",
        "https://bob@x.com@evil.com/pay",
    ],
)  # fmt: skip
def test_no_spelling_of_a_web_address_is_overlooked(address: str) -> None:
    for text in (address, f"The report is at {address} now.", f"Look:\n{address}\n", f"({address})"):
        found = parts(text, "prose")
        assert any("evil." in part.lower() for part in found), text


@pytest.mark.parametrize("separator", ["", " ", "\n", "\t", "."])
@pytest.mark.parametrize("account", ["DE89 3704 0044 0532 0130 00", "de89 3704 0044 0532 0130 00"])
def test_no_spelling_of_an_account_is_overlooked(account: str, separator: str) -> None:
    written = account.replace(" ", separator)
    assert any(part.startswith(written[:14]) for part in parts(f"pay to {written} please", "prose"))


@pytest.mark.parametrize(
    "address", ["93.184.216.34/login", "//93.184.216.34", "93.184.216.34:8080", "x!@93.184.216.34"]
)
def test_a_host_without_a_name_is_an_address(address: str) -> None:
    assert any("93.184.216.34" in part for part in parts(f"See {address} now.", "prose"))


def test_an_address_is_taken_out_where_it_stands_and_not_within_another() -> None:
    assert parts("Tell bob@x.com, see https://bob@x.com/pay", "prose") == ["https://bob@x.com/pay", "bob@x.com"]
    assert parts("NL91ABNA0417164300, not NL91ABNA0417164300-99", "prose") == [
        "NL91ABNA0417164300", "NL91ABNA0417164300-99",
    ]  # fmt: skip


def test_a_full_stop_between_sentences_is_no_dot() -> None:
    text = "\u4f1a\u8bae\u5728\u660e\u5929\u3002\u8bf7\u5e26\u6587\u4ef6\u3002"
    assert parts(text, "prose") == []


def test_versions_and_schemes_alone_are_no_addresses() -> None:
    assert parts("release 1.2.3.4.5 of 12.05.2024; links start with https:// here :/ x", "prose") == []


def test_paths_times_and_abbreviations_are_no_addresses() -> None:
    assert parts("e.g. docs/readme.txt, 10:30, a/b/c.py, at 5 p.m., // a comment, 3.14", "prose") == []


def everywhere(text: str) -> list[str]:
    return [part for reading in (text, *readings(text).texts) for part in parts(reading, "prose")]


@pytest.mark.parametrize(
    "link",
    [
        r"/\/evil.com/q", r"\/\/evil.com/q", "/\t/evil.com/q", "/\n//\tevil/q", r"//evil\.com/q", "//evil%2ecom/q",
        "//evil&#46;com/q", "//evil&#0000000000046;com", "//[2001:db8::1]/q", "//0x7f.1/q", "//'@0x7f.1",
        "https:0x7f.1", r"https\://evil.com", "https&colon;//evil.com", "evil&#46;com", r"evil\.com",
        "evil&amp;#46;com", r"bob\@evil.com", "bob&#64;evil.com", "bob%40evil.com", "bob%2540evil.com",
        r"bob@evil\.com", "&sol;&bsol;1",
        "//evil&Tab;.com", "//evil%EF%BC%8Ecom", "javascript:alert(1)",
        "java&Tab;script:alert(1)", "data:text/html,x", "https:/&NewLine;1",
    ],
)  # fmt: skip
def test_no_link_that_a_renderer_or_a_browser_follows_is_overlooked(link: str) -> None:
    for text in (f"See [report]({link})", f'<a href="{link}">report</a>', f"See [report]\n\n[report]: {link}"):
        assert everywhere(text), text


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "href" and value]


def leads_away(link: str) -> bool:
    """Read a link as a browser does: to another host or scheme, with something behind it?"""
    link = unquote(re.sub(r"[\t\n\r\u00ad\u200c]", "", link).strip().replace("\\", "/"))
    found = re.match(r"(?:[A-Za-z][A-Za-z0-9+.-]+:|//)(.*)", link)
    return found is not None and re.search(r"[\w\[]", found[1]) is not None


PIECES = [
    "//", "/", "\\", "evil", ".", "com", "&#46;", "&period;", "\\.", "%2e", "&amp;", "#46;", "[a](", ")", "<", ">",
    "\t", "\n", " ", "https:", "https&colon;", "javascript:", "mailto:", "bob", "@", "&#64;", "%40", "[a]: ", "[a]",
    "&#x2f;", "&sol;", "&bsol;", "&Tab;", "&NewLine;", "0x7f.1", "[::1]", "1", "x", '"', "'", "*", "_", "`", "<a href=",
    "ttps:", "&lt;", "&shy;", "-", "!",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.sampled_from(["{}", "[a]({})"]))
def test_whatever_markdown_renders_to_a_link_that_leads_away_has_parts(pieces: str, form: str) -> None:
    markdown = pytest.importorskip("markdown_it")
    text = form.format(pieces)
    links = _Links()
    links.feed(markdown.MarkdownIt("commonmark").render(text))
    if is_plain(text) and readings(text).complete and any(map(leads_away, links.found)):
        assert everywhere(text)


@given(st.text(max_size=60), st.integers(0, 3))
def test_an_escaped_text_is_read_as_what_it_was(text: str, times: int) -> None:
    written = f"//evil.com/{text}"
    for _ in range(times):
        written = html.escape(written)
    assert any("evil.com" in part for part in everywhere(written))


@pytest.mark.parametrize(
    "text",
    [
        r"Tom & Jerry, 100% sure, AT&T \o/ 3 < 4; and/or, km//h, a // comment, 5 p.m.", r"C:\Users\bob or \\ alone",
        "It starts with https:// or ftp://, as (http:) does.", "a/\n/b and 50%\n<b style='color:red'>bold</b>",
        "[notes](notes) and [more](../more#top), x = 1; see [1]: Smith", "Note: this. Re:x, ratio 3:2",
    ],
)  # fmt: skip
def test_what_leads_nowhere_else_has_no_parts_in_any_reading(text: str) -> None:
    assert everywhere(text) == []


@pytest.mark.parametrize(
    "unit",
    ["/", "/\t", "\\", "https:/", "](<", "= ", "<a@", "&#0", "&#9", "&amp;", "%25", "<a=b:", "//'", "]:\n", "a'b"],
)
def test_no_text_takes_long_to_take_apart(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    started = time.process_time()
    for kind in ("prose", "words", "quotes"):
        for reading in (text, *readings(text).texts):
            parts(reading, kind)
    assert time.process_time() - started < 10


def test_a_text_escaped_over_and_over_is_not_read_to_its_end() -> None:
    assert not readings("&" + "amp;" * 50 + "#46;").complete
    assert readings("Plain words, 100 of them.") == ((), True)
