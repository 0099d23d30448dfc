"""What a reader cannot see is known as such; what can be read is not."""

import pytest

from memory_audit.text.invisible import is_invisible


@pytest.mark.parametrize("code", [0x00, 0x0A, 0x7F, 0xAD, 0x34F, 0x180B, 0x200B, 0x202E, 0x2028, 0x2800, 0x3164, 0xFE0F,
                                  0xD800, 0xE000, 0xE0041, 0xE0100, 0x10FFFF])  # fmt: skip
def test_characters_that_show_nothing(code):
    assert is_invisible(chr(code))


@pytest.mark.parametrize("character", "aZ9 .\u00e9\u4e2d\u0301\U0001f600")
def test_characters_that_can_be_read(character):
    assert not is_invisible(character)


def test_an_attackers_many_characters_do_not_grow_the_memory():
    for code in range(0x3400, 0x3400 + 6_000):
        is_invisible(chr(code))
    assert is_invisible.cache_info().currsize <= 4_096
