"""Lines that JSON allows and an entry does not, and where lines come from."""

import os
import threading

import pytest

from audit.errors import EntryError
from jobs.import_jsonl import parse_entries, read_entries


@pytest.mark.parametrize("number", [b"9" * 5_000, b"1e999", b"NaN"])
def test_a_number_that_no_entry_holds_is_refused_by_line(number):
    line = b'{"tenant": "t", "entry_id": "e", "principal": "p", "source": "user", "request": "q", "response": "r", '
    with pytest.raises(EntryError, match="f, line 1"):
        list(parse_entries([line + b'"created_at_ms": ' + number + b"}"], "f", {}))


def test_a_pipe_is_read_like_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[b"\n"], daemon=True)
    writer.start()
    assert read_entries(pipe, {}) == []
    writer.join()
