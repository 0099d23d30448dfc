"""How inputs are made of seeds, by draws of a seeded generator.

Bytes: flips, insertions, cuts, repeats, splices of two seeds. Tokens: numbers, texts and words of JSON or YAML replaced
by odd ones, also by such as no JSON value can hold (numbers of thousands of digits, half surrogates, tags, deep
nesting). Values: members of a decoded JSON value replaced, dropped or added before it is spelt again, so that inputs
get past the spelling to the rules behind it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

__all__ = ["mutate", "mutate_lines", "mutate_tokens", "mutate_value"]

ODD_VALUES = (
    "null", "true", "-1", "0", "1", "0.5", "-1e-9", "1e308", "Infinity", "NaN", str(2**63), str(2**64), str(10**30),
    "9" * 400, "9" * 4300, '""', '"x"', '"é"', '"e\u0301"', r'"\u0000"', r'"\ud800"', f'"{"ab" * 32}"', "[]", "{}",
    "[[]]", '{"":""}', '[["x"]]', '[1,"1"]', f'"{"x" * 300}"', f'"{"x" * 5_000}"',
)  # fmt: skip
"""As JSON text: each use is a fresh value, since a mutation may go on inside it."""

HUGE_TOKENS = (
    b"9" * 4300, b"9" * 4301, b"-" + b"9" * 5_000, b"0x" + b"f" * 4_000, b"0b" + b"1" * 16_000, b"1:" * 900 + b"1",
    b"1:" * 900 + b"1.5", b'"' + b"x" * 5_000 + b'"', b'"' + b"x" * 70_000 + b'"',
)  # fmt: skip

ODD_TOKENS = (
    *(text.encode() for text in ODD_VALUES if len(text) < 1_000), b"1e999", b"-0", b"2001-99-99", b"2001-01-01",
    b"2001-01-01 00:00:00 +99:99", b"!!bool x", b'!!int ""', b'!!float ""', b"!!timestamp x", b"!!map [a]",
    b"!!set {a}", b"!!binary AA==", b"!!python/none x", b"&a [*a]",
    b"*a", b"<<: {a: b}", b"? [a]\n: b", b".inf", b".nan", b"yes",
    b'"\\ud800"', b'"\\U00110000"', b"\xff", b"\xef\xbb\xbf", b"a{99999999999}", b"((((a*)*)*)*", b"(?P<a>", b"%", b"|",
)  # fmt: skip

ODD_BYTES = (b"\x00", b"\xff", b"\n", b"+", b"\x9f", b"\xc2", b"\x1b", b'"', b"\xcc\x81")
ODD_NAMES = ("", "extra", "version", "kind", "name")

DEEPEST = 1_100
"""Nesting around which Python gives up: what one function still reads, the next one may not."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|[A-Za-z_][\w*-]*')


def mutate(draw: Random, seeds: list[bytes]) -> bytes:
    """One to four byte-level changes of a seed."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data.insert(at, draw.randrange(256))
        elif kind == 2:
            del data[at : at + draw.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 16)]
        elif kind == 4:
            other = draw.choice(seeds)
            data[at:] = other[draw.randrange(len(other) + 1) :]
        else:
            data[at : at + 1] = draw.choice(ODD_BYTES)
    return bytes(data)


def mutate_tokens(draw: Random, seed: bytes) -> bytes:
    """Replace one or two tokens of a text by odd ones, or by others of the same text."""
    for _ in range(draw.randint(1, 2)):
        found = list(_TOKEN.finditer(seed))
        if not found:
            return seed
        token = draw.choice(found)
        kind = draw.randrange(256)  # what is large is rare: it costs most of the time and finds little
        if kind == 0:
            new = draw.choice(HUGE_TOKENS)
        elif kind < 176:
            new = draw.choice(ODD_TOKENS)
        elif kind < 254:
            new = draw.choice(found)[0]
        else:
            depth = draw.choice((draw.randint(1, 30), draw.randint(DEEPEST - 200, DEEPEST)))
            new = b'[{"a":' * (depth // 2) + b"1" + b"}]" * (depth // 2) if draw.random() < 0.5 else b"[" * depth
        seed = seed[: token.start()] + new + seed[token.end() :]
    return seed


def mutate_value(draw: Random, seed: bytes, *, canonical: bool = False) -> bytes:
    """Replace, drop or add members somewhere in a JSON value; `canonical` spells it as `provenance` does."""
    value = json.loads(seed)
    for _ in range(draw.randint(1, 2)):
        node: Any = value
        while True:
            keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(node[key], dict | list) and node[key] and draw.random() < 0.8:
                node = node[key]
                continue
            if draw.random() < 0.2:
                del node[key]
            else:
                node[key] = json.loads(draw.choice(ODD_VALUES))
            break
        if isinstance(node, dict) and draw.random() < 0.1:
            node[draw.choice(ODD_NAMES)] = json.loads(draw.choice(ODD_VALUES))
    if not canonical:
        return json.dumps(value).encode()
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode(errors="replace")


def mutate_lines(draw: Random, seed: bytes) -> bytes:
    """Change one of the JSON values that stand on lines of their own; sometimes drop, repeat or swap lines too."""
    lines = seed.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = mutate_value(draw, lines[at]) if draw.random() < 0.7 else mutate_tokens(draw, lines[at])
    if draw.random() < 0.2:
        lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    if draw.random() < 0.1:
        del lines[draw.randrange(len(lines))]
    return b"\n".join(lines)
