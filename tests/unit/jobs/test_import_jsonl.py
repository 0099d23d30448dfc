"""Lines that JSON allows and an entry does not."""

import pytest

from audit.errors import EntryError
from jobs.import_jsonl import parse_entries


@pytest.mark.parametrize("number", [b"9" * 5_000, b"1e999", b"NaN"])
def test_a_number_that_no_entry_holds_is_refused_by_line(number):
    line = b'{"tenant": "t", "entry_id": "e", "principal": "p", "source": "user", "request": "q", "response": "r", '
    with pytest.raises(EntryError, match="f, line 1"):
        list(parse_entries([line + b'"created_at_ms": ' + number + b"}"], "f", {}))
