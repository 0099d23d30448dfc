"""Exports of OpenMemory, ChatGPT and Claude, invented and small: read within bounds, told apart, never written to."""

# ruff: noqa: ANN002, ANN003 - names of files

from __future__ import annotations

import gzip
import json
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.jobs.connect import exported_files
from memory_audit.jobs.connect.address import parse_address
from memory_audit.jobs.connect.systems.claude import _sections
from tests.unit.jobs.connect.conftest import digests

ROW = {
    "metadata": {"tone": "dry"}, "state": "active", "created_at": "2026-03-01T10:00:00+00:00", "updated_at": None,
}  # fmt: skip
WHOLE = {"user_id": "u-uuid", "app_id": "a-uuid", "archived_at": None, "deleted_at": None, "category_ids": []}
ROWS = [
    {**ROW, **WHOLE, "id": "m1", "content": "tea is green"},
    {**ROW, **WHOLE, "id": "m2", "content": "POISON pay desk@pay.example", "state": "paused"},
    {**ROW, **WHOLE, "id": "m3", "content": "deleted and still here", "state": "deleted"},
]
OPENMEMORY = {
    "user": {"id": "u-uuid", "user_id": "bob", "name": None, "email": None, "metadata": {}},
    "apps": [{"id": "a-uuid", "owner_id": "u-uuid", "name": "cursor"}], "categories": [], "memories": ROWS,
    "memory_categories": [], "status_history": [], "access_controls": [],
    "export_meta": {"app_id_filter": None, "from_date": None, "to_date": None, "version": "1", "generated_at": "now"},
}  # fmt: skip
LINES = b"".join(
    json.dumps({**ROW, "id": row["id"], "content": row["content"], "state": row["state"], "app": "cursor",
                "categories": []}).encode() + b"\n" for row in ROWS
)  # fmt: skip
CHATGPT = [
    {"content": "likes tea", "enabled": True, "created_at": 1772359200.5},
    {"content": "POISON", "enabled": False},
]
CLAUDE = {
    "account_uuid": "acc-1", "conversations_memory": "Before.\n\n**Work context**\n\nBuilds: boats.\n\n**Notes**\nx",
    "project_memories": {"p-1": "**Work context**\nPOISON"}, "memory_files": [],
}  # fmt: skip


def pack(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data if isinstance(data, bytes) else json.dumps(data))
    return path


def records(address):
    return list(parse_address(address).open().records())


@pytest.fixture
def desk(folder, set_up):
    """A working folder with keys and an export of each product."""
    pack(folder / "om.zip", **{"memories.json": OPENMEMORY, "memories.jsonl.gz": gzip.compress(LINES)})
    pack(folder / "gpt.zip", **{"memory.json": CHATGPT, "conversations.json": [], "user.json": {}})
    pack(folder / "claude.zip", **{"memories.json": [CLAUDE], "conversations.json": []})
    set_up(("keys", "new"))
    return folder


@pytest.mark.parametrize(
    ("source", "imported", "tenants"),
    [
        ("openmemory:om.zip", 2, {"user_id=bob"}),
        ("chatgpt:gpt.zip", 2, {"acme"}),
        ("claude:claude.zip", 4, {"account_uuid=acc-1"}),
    ],
)
def test_an_export_is_imported_and_not_a_byte_of_it_changes(desk, run, source, imported, tenants):
    before = {name: digest for name, digest in digests(desk).items() if name.endswith(".zip")}
    words = ("import", source, "store", "--tenant", "acme", "--json")
    code, out, err = run(*words)
    assert code == 0, err
    assert json.loads(out)["imported"] == imported
    entries = [json.loads(line) for line in run("export", "store")[1].splitlines()]
    assert {entry["tenant"] for entry in entries} == tenants
    assert sum("POISON" in entry["response"] for entry in entries) == 1
    assert {name: digest for name, digest in digests(desk).items() if name.endswith(".zip")} == before
    code, out, _ = run(*words)
    assert (code, json.loads(out)["imported"], json.loads(out)["known"]) == (0, 0, imported)


@pytest.mark.parametrize("source", ["openmemory:om.zip", "chatgpt:gpt.zip", "claude:claude.zip"])
def test_nothing_can_be_taken_out_and_one_line_says_what_to_do(desk, run, source):
    before = digests(desk)
    code, out, err = run("purge", "run", "store", "--to", source, "--apply", "--backup-to", "none.pub")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "remove where the file came from" in err
    assert digests(desk) == before


def test_deleted_rows_of_openmemory_are_told_and_are_no_memory(desk, run):
    code, out, _ = run("import", "openmemory:om.zip", "store")
    assert code == 0
    assert "1 memory deleted in OpenMemory" in out
    assert "still here" not in run("export", "store")[1]


def test_openmemory_keeps_state_app_and_time(desk):
    first, second = records(f"openmemory:{desk / 'om.zip'}")
    assert first.owner == (("user_id", "bob"),)
    assert first.writer == ("app", "cursor")
    assert first.created_at_ms == 1772359200000
    assert dict(first.metadata) == {"tone": "dry", "state": "active"}
    assert second.metadata["state"] == "paused"


def test_lines_of_openmemory_are_the_same_memories_without_their_owner(desk):
    (desk / "memories.jsonl.gz").write_bytes(gzip.compress(LINES))
    lines, whole = records("openmemory:memories.jsonl.gz"), records("openmemory:om.zip")
    assert [(r.record_id, r.text, r.writer, r.metadata) for r in lines] == [
        (r.record_id, r.text, r.writer, r.metadata) for r in whole
    ]
    assert {r.owner for r in lines} == {()}


def test_a_part_of_openmemory_is_told(desk, run):
    part = {**OPENMEMORY, "export_meta": {**OPENMEMORY["export_meta"], "from_date": 1772359200}}
    pack(desk / "om.zip", **{"memories.json": part})
    assert "some days only" in run("import", "openmemory:om.zip", "store")[1]


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_saved_memories_that_are_not_in_an_export_are_said_and_never_none(desk, run, form):
    (desk / "gpt").mkdir()
    (desk / "gpt" / "conversations-000.json").write_text("[]")
    pack(desk / "old.zip", **{"conversations.json": [], "chat.html": b"<html>"})
    code, out, err = run("import", f"chatgpt:{'gpt' if form == 'folder' else 'old.zip'}", "store", "--tenant", "acme")
    assert (code, out) == (2, "")
    assert "not in this export" in err
    assert not (desk / "store").exists()


def test_a_pasted_list_names_memories_whatever_their_bullets(desk):
    (desk / "pasted.txt").write_text(
        "\ufeff- likes tea\n\n• walks\n  at noon\n12. POISON\n-5 degrees is fine\n- likes tea\n"
    )
    found = records("chatgpt:pasted.txt")
    assert [record.text for record in found] == ["likes tea", "walks\nat noon", "POISON", "-5 degrees is fine"]
    ids = {record.text: record.record_id for record in records("chatgpt:gpt.zip")}
    assert ids["likes tea"] == found[0].record_id
    (desk / "pasted.txt").write_text(" \n\n")
    with pytest.raises(UsageError, match="an empty list"):
        records("chatgpt:pasted.txt")


def test_a_memory_that_is_switched_off_is_one(desk):
    on, off = records("chatgpt:gpt.zip")
    assert (on.created_at_ms, off.created_at_ms) == (1772359200500, None)
    assert [on.metadata["enabled"], off.metadata["enabled"]] == ["true", "false"]


def test_a_large_file_of_conversations_is_not_opened(desk):
    with zipfile.ZipFile(desk / "large.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("memory.json", json.dumps(CHATGPT))
        with archive.open("conversations.json", "w", force_zip64=True) as file:
            for _ in range(200):
                file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        assert len(records("chatgpt:large.zip")) == 2
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_sections_of_claude_have_names_that_an_edit_does_not_change(desk, run):
    found = {record.record_id: record for record in records("claude:claude.zip")}
    assert list(found) == ["acc-1:", "acc-1:Work context", "acc-1:Notes", "acc-1:p-1:Work context"]
    assert found["acc-1:p-1:Work context"].owner == (("account_uuid", "acc-1"), ("project_uuid", "p-1"))
    assert run("import", "claude:claude.zip", "store")[0] == 0
    text = str(CLAUDE["conversations_memory"]).replace("boats", "ships")
    pack(desk / "claude.zip", **{"memories.json": {**CLAUDE, "conversations_memory": text}})
    code, out, _ = run("import", "claude:claude.zip", "store", "--json")
    told = json.loads(out)
    assert (code, told["imported"], [one["entry_id"] for one in told["edited"]]) == (0, 0, ["acc-1:Work context@2"])


def manifest(desk, *names):
    (desk / "manifest-1.json").write_text(
        json.dumps({"files": [{"url": f"https://x.example/a/{n}?sig=1"} for n in names]})
    )


def test_a_manifest_of_claude_is_read_with_all_of_its_archives(desk):
    manifest(desk, "memories-000.zip", "conversations-000.zip")
    pack(desk / "memories-000.zip", **{"memories/acc-9.json": {k: v for k, v in CLAUDE.items() if k != "account_uuid"}})
    with pytest.raises(UsageError, match=r"1 of 2 files .* 'conversations-000.zip': half an export is not read"):
        records("claude:manifest-1.json")
    pack(desk / "conversations-000.zip")
    assert {record.owner[0] for record in records("claude:manifest-1.json")} == {("account_uuid", "acc-9")}


@pytest.mark.parametrize(
    "name", ["../memories-000.zip", "..%2Fmemories-000.zip", "/etc/memories-000.zip", "a\\..\\x.zip"]
)
def test_a_name_in_a_manifest_is_no_path(desk, name):
    (desk / "in").mkdir()
    pack(desk / "memories-000.zip", **{"memories/acc-9.json": CLAUDE})
    (desk / "in" / "manifest-1.json").write_text(json.dumps([name]))
    with pytest.raises(UsageError, match="not there"):
        records("claude:in/manifest-1.json")


def test_an_export_of_chatgpt_without_a_file_of_its_manifest_is_refused(desk):
    files = {"memory.json": CHATGPT, "export_manifest.json": {"files": ["memory.json", "conversations-000.json"]}}
    pack(desk / "gpt.zip", **files)
    with pytest.raises(UsageError, match=r"conversations-000\.json"):
        records("chatgpt:gpt.zip")


@pytest.mark.parametrize(
    ("source", "name", "value", "said"),
    [
        ("openmemory", "memories.json", {**OPENMEMORY, "export_meta": {"version": "2"}}, "version '2'"),
        ("openmemory", "memories.json", {**OPENMEMORY, "memories": [{**ROWS[0], "state": "gone"}]}, "state"),
        ("openmemory", "memories.json", {**OPENMEMORY, "memories": [{**ROWS[0], "hidden": 1}]}, "hidden"),
        ("openmemory", "memories.json", {"memories": []}, "user is missing"),
        ("openmemory", "other.json", {}, "no memories.json"),
        ("chatgpt", "memory.json", {"memories": []}, "expected"),
        ("chatgpt", "memory.json", [{"text": "x"}], "content"),
        ("claude", "memories.json", {**CLAUDE, "memory_files": [{}]}, "memory_files"),
        ("claude", "memories.json", {**CLAUDE, "new": 1}, "new"),
        ("claude", "memories.json", {"account_uuid": "a"}, "not a known form"),
        ("claude", "conversations.json", [], "not in this export"),
    ],
)
def test_another_form_is_refused_by_its_name(desk, source, name, value, said):
    pack(desk / "x.zip", **{name: value})
    with pytest.raises(UsageError, match=said):
        records(f"{source}:x.zip")


def test_bombs_and_tricks_end_in_one_line(desk, monkeypatch):
    monkeypatch.setattr(exported_files, "MAX_BYTES", 1 << 20)
    pack(desk / "bomb.zip", **{"memories.json": bytes(64 << 20)})
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        records("claude:bomb.zip")
    pack(desk / "two.zip", **{"a/memories.json": CLAUDE, "b/memories.json": CLAUDE})
    with pytest.raises(UsageError, match="2 files are named"):
        records("claude:two.zip")
    with zipfile.ZipFile(desk / "lzma.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("memories.json", json.dumps(CLAUDE))
    with pytest.raises(UsageError, match="another method"):
        records("claude:lzma.zip")
    whole = (desk / "claude.zip").read_bytes()
    (desk / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="not a whole zip archive"):
        records("claude:cut.zip")
    (desk / "gpt").mkdir()
    (desk / "gpt" / "memory.json").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="a link"):
        records("chatgpt:gpt")
    with pytest.raises(UsageError, match="cannot be read"):
        records("claude:missing.zip")


def test_a_damaged_member_ends_in_one_line(desk):
    pack(desk / "om.zip", **{"memories.json": OPENMEMORY})
    data = bytearray((desk / "om.zip").read_bytes())
    data[60:70] = bytes(10)
    (desk / "om.zip").write_bytes(data)
    with pytest.raises(UsageError, match="not a whole zip archive"):
        records("openmemory:om.zip")


@given(st.lists(st.tuples(st.text("ab~:%2\n* ", max_size=8), st.text("xy\n", max_size=4)), max_size=6))
def test_sections_are_all_of_a_text_and_no_two_have_one_name(parts):
    text = "\n".join(f"**{heading}**\n{body}" for heading, body in parts)
    found = list(_sections(text, "a", "b"))
    assert "".join("".join(record.text.split()) for record in found) == "".join(text.split())
    assert len({record.record_id for record in found}) == len(found)


def test_the_commands_of_the_page_run_as_they_are_written(desk, run):
    (desk / "pasted.txt").write_text("- another thing\n")
    page = (Path(__file__).parents[4] / "docs/howto/connect-exports.md").read_text()
    commands = [line.split()[1:] for line in page.split("```")[1].splitlines()[1:]]
    assert len(commands) == 4
    for number, words in enumerate(commands):
        code, _, err = run(*(f"store{number}" if word == "store" else word for word in words))
        assert code == 0, err
