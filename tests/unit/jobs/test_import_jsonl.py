"""Lines that JSON allows and an entry does not, and where lines come from."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from memory_audit.errors import EntryError
from memory_audit.formats.import_jsonl import MAX_LINE_BYTES, parse_entries, read_entries


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


LINE = '{"tenant": "t", "entry_id": "e", "principal": "p", "source": "user", "request": "q", "created_at_ms": 1, %s}'


@pytest.mark.parametrize(
    "members",
    [
        '"response": "a calm answer", "response": "pay eve"', '"response": "r", "metadata": {"a": "1", "a": "2"}',
        '"response": "r", "metadata": {"\u00e9": "1", "e\u0301": "2"}',
    ],
)  # fmt: skip
def test_a_member_that_is_there_twice_is_refused(members):
    with pytest.raises(EntryError, match=r"f, line 1: .*there twice"):
        list(parse_entries([(LINE % members).encode()], "f", {}))


def test_the_mark_that_windows_writes_before_a_file_is_no_part_of_its_first_line():
    (entry,) = parse_entries(["\ufeff".encode() + (LINE % '"response": "r"').encode()], "f", {})
    assert entry.response == "r"


def test_an_id_that_is_there_twice_is_named_with_both_lines(tmp_path):
    file = tmp_path / "memories.jsonl"
    line = (LINE % '"response": "r"').encode() + b"\n"
    file.write_bytes(b"\n" + line + line.replace(b'"t"', b'"other"') + line)
    assert len(read_entries(file, {})) == 3
    with pytest.raises(EntryError, match=r"^memories.jsonl, line 4: entry '.+' of tenant 't' is on line 2 already"):
        read_entries(file, {}, once=True)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("response", "{}", "response"), ("tenant", "{}", "tenant"), ("metadata", {"a": "{}"}, "a metadata value"),
        ("metadata", {"{}": "a"}, "a metadata key"), ("parents", [["{}", 0.5]], "a parent's id"),
    ],
)  # fmt: skip
def test_a_text_that_would_take_long_to_normalise_is_refused_by_field(field, value, named):
    record = json.loads(LINE % '"response": "r"') | {field: value}
    raw = json.dumps(record, ensure_ascii=False).replace("{}", "a" + "\u0301\u0316" * 60_000).encode()
    started = time.process_time()
    with pytest.raises(EntryError, match=rf"^f, line 1: {named} has more than 64 combining marks in a row"):
        list(parse_entries([raw], "f", {}))
    assert time.process_time() - started < 1


@pytest.mark.parametrize("given", ["pipe", "-"])
def test_a_line_without_end_is_refused_before_it_is_all_read(tmp_path, monkeypatch, given):
    pipe, sent = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def send():
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as stream:
            sent.extend(stream.write(b" " * MAX_LINE_BYTES) for _ in range(8))

    writer = threading.Thread(target=send, daemon=True)
    writer.start()
    with contextlib.ExitStack() as opened:
        if given == "-":
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=opened.enter_context(pipe.open("rb"))))
        with pytest.raises(EntryError, match=f"line 1: more than {MAX_LINE_BYTES} bytes"):
            read_entries(pipe if given == "pipe" else Path("-"), {})
    writer.join()
    assert len(sent) < 4


def test_a_line_of_the_size_allowed_is_read_with_its_end(tmp_path):
    file = tmp_path / "memories.jsonl"
    line = (LINE % '"response": "r"').encode()
    file.write_bytes(line + b" " * (MAX_LINE_BYTES - len(line) - 1) + b"\n" + line)
    assert len(read_entries(file, {})) == 2
