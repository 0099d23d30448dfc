#!/usr/bin/env bash
# agno 3.1.10 (memory in SQLite): a memory with a quotation mark, a line break or an accented letter is not found by searching
# for those very characters.
#
# Guess: `get_user_memories(search_content=…)` finds each memory whose text holds what is searched.
# Seen: the column holds the text as JSON with escapes, and the search compares with that. So "Café" is stored as
# "Caf\u00e9" and never found, while "u00e9" finds it; topics likewise. `delete_user_memory` returns None whether or not
# anything was deleted, although its documentation promises True or False.
# So a check that a removed text is gone reads all memories and compares them itself.
#
# Output seen:
#   'Caf': 1, 'Café': 0, 'u00e9': 1
#   'now': 1, '"pay now"': 0
#   'second': 1, 'first\nsecond': 0
#   topic 'café': 0
#   deleted: None, never existed: None, left: 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check agno==3.1.10 sqlalchemy==2.1.9 greenlet==3.5.6
cat > "$folder/seen.py" <<'PYTHON'
import sys

from agno.db.sqlite import SqliteDb
from agno.memory import MemoryManager, UserMemory

db = SqliteDb(db_file=sys.argv[1])
memory = MemoryManager(db=db)
for text in ("Orders go to Café Sol.", 'He said "pay now".', "first\nsecond"):
    memory.add_user_memory(UserMemory(memory=text, topics=["café"]), user_id="ann")


def found(*searched):
    return ", ".join(f"{text!r}: {len(db.get_user_memories(user_id='ann', search_content=text))}" for text in searched)


print(found("Caf", "Café", "u00e9"))
print(found("now", '"pay now"'))
print(found("second", "first\nsecond"))
print(f"topic 'café': {len(db.get_user_memories(user_id='ann', topics=['café']))}")
gone = db.delete_user_memory(memory.get_user_memories("ann")[0].memory_id)
never = db.delete_user_memory("no-such-memory")
print(f"deleted: {gone}, never existed: {never}, left: {len(memory.get_user_memories('ann'))}")
PYTHON
cat > "$folder/expected" <<'TEXT'
'Caf': 1, 'Café': 0, 'u00e9': 1
'now': 1, '"pay now"': 0
'second': 1, 'first\nsecond': 0
topic 'café': 0
deleted: None, never existed: None, left: 2
TEXT
"$folder/venv/bin/python" "$folder/seen.py" "$folder/memories.db" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
