"""What a renderer shows of a text with markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.gate.parts import parts
from memory_audit.gate.renderings import readings
from memory_audit.gate.shown import shown
from memory_audit.gate.values import is_plain


@pytest.mark.parametrize(
    "text",
    [
        "evil<b>.</b>com", "<i>evil</i>.com", "evil<wbr>.com", "evil<!-- a > b -->.com", "evil<!---->.com",
        "evil<?x?>.com", "evil<b title='a > b'>.</b>com", 'evil<b a = "</b>">.</b>com', "evil</ x>.com",
        "evil<x-y>.</x-y>com", "evil<p style='display: inline'>.</p>com", "evil<img alt='.'>com",
        "evil<b\n class=x\n>.com", "<B>evil</B>.com", "evil<script>x > y</script>.com",
        "ev<i hidden>x<i>y</i>z</i>il.com", "evil<b style='display:none'>x</b>.com", "**evil**.com", "_evil_.com",
        "__evil__.com", "evil`.`com", "evil``.``com", "evil` .com `", "~~evil~~.com", "[evil](/x).com",
        "evil[.](<b> 'c (d)')com", "![evil](/x).com", "[![evil](/i)](/x).com", "[evil][1].com\n\n[1]: /x",
        "[evil].com\n\n[evil]: /x", "[b]evil[/b].com", "[url=/x]evil[/url].com", "evil||.||com", "evil==.==com",
        "***evil***.com", "**~~evil~~**.com", "<b>**evil**</b>.com", "_e_<b></b>vil.com",
    ],
)  # fmt: skip
def test_markup_parts_no_host(text: str) -> None:
    assert any("evil.com" in form for form in shown(text)), shown(text)


@pytest.mark.parametrize(
    "text",
    [
        "<p>evil</p>.com", "evil<br>.com", "<td>evil</td><td>.com</td>", "evil<li>.com", "evil **.** com",
        "rc_*.com and evil", "evil[0].com", "2 * 3 * 4 evil .com", "*evil\n\n.*com", "3 < 4 evil > .com",
    ],
)  # fmt: skip
def test_what_parts_for_a_reader_parts(text: str) -> None:
    assert not any("evil.com" in form for form in shown(text)), shown(text)


def test_a_text_without_markup_is_shown_as_it_stands() -> None:
    for text in ("Plain words, 100 of them.", "a < b and c > d", "x * y, snake_case_name, 5 p.m.", "list[0], f(x)[1]"):
        assert set(shown(text)) == {text}


class _Shown(HTMLParser):
    """The standard library's reading, which is another's than the product's: text, alternative texts, broken lines."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"p", "br", "div", "pre", "ul", "li", "blockquote", "h1", "hr"}:
            self.text.append("\n")
        if tag == "img":
            self.text.append(dict(attrs).get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"p", "div", "pre", "ul", "li", "blockquote", "h1"}:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def rendered(html: str) -> str:
    parser = _Shown()
    parser.feed(html)
    parser.close()
    return re.sub("[\u00ad\u200c]", "", "".join(parser.text)).replace("\xa0", " ")


MARKUP = [
    "<b>", "</b>", "<i class='a>b'>", "</i>", "<!-- x > -->", "<!--1-->", "<wbr>", '<span title="<!--">', "</span>",
    "<br>", "<x-y a=b>", "<img alt=''>", "<b/>", "< b>", "<?a?>", "<!x>", "</ b>", "**", "*", "_", "__", "`", "``",
    "[", "](/a)", "](<b>)", "![", "~~", "\\", "&shy;", "&zwnj;", "[r]", "[r]: /a\n", "--&gt;",
]  # fmt: skip


@st.composite
def marked(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(["evil.com", "bob@evil.com", "see evil.com now", "1234 5678 9012", "12345678"]))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(MARKUP)) + text[at:]
    return text


def addresses(text: str) -> set[str]:
    found = " ".join(part.form for part in parts(text, "prose"))
    return set(re.findall(r"(?:bob@)?evil\.com|\b[0-9]{7,}\b", found))


@given(marked(), st.booleans())
def test_whatever_a_renderer_shows_is_a_part_of_some_reading(text: str, markdown: bool) -> None:  # noqa: FBT001
    html = text
    if markdown:
        renderer = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable("strikethrough")
        html = renderer.render(text)
    if not is_plain(text) or re.search(r"</\w+[^>]*<|<!\[", html):  # the standard library errs on these, by version
        return
    found = [part for form in (text, *readings(text).texts) for part in parts(form, "prose")]
    known = " ".join(f"{part.form} {part.row}" for part in found)
    assert all(address in known for address in addresses(rendered(html))), (html, found)


@pytest.mark.parametrize(
    "unit",
    [
        "<", "<!--", '<a="', "<a='\"", '<a x=">"', "<a ", "<b>", "<b hidden>", "</", "<!", "<p>", "<b>1</b>\n\n</",
        "[", "![", "[a](", "[a][", "](", "[b]", "[/b]", "*", "*a", "* ", "**", "_", "_a", "_ ", "`", "` ", "`a",
        "''", "||", "==a", "\n\n", "\n ", "-->", '<img alt="', "<i style='display:none'>x</i>",
    ],
)  # fmt: skip
def test_no_markup_takes_long_to_take_off(unit: str) -> None:
    """In the square of its length it would take longer than the runner waits."""
    text = unit * (300_000 // len(unit))
    assert all(len(form) <= len(text) for form in shown(text))


@given(st.text("ab1 .<>[]()*`~_^|=+'/\\&%\t\n", max_size=12))
def test_what_has_no_other_reading_is_shown_as_it_stands(text: str) -> None:
    if not readings(text).texts:
        assert set(shown(text)) == {text}
