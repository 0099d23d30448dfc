#!/usr/bin/env bash
# google-adk 2.13.0, SqliteMemoryService: the order in which one user's memories are found depends on what other users store.
#
# Guess: a search by app and user depends on that user's memories alone, so a replay from a copy of them repeats it.
# Seen: the search ranks by BM25 of one full-text index over all apps and users. How rare a word is among everybody's
# memories decides. Here another user's notes turn Ann's order, and a third user's notes turn it back; with a limit on
# results, what is cut off turns likewise. So a replay needs the whole table, or the retrieved ids of the event.
# A search returns row numbers as ids, other than InMemoryMemoryService, which returns event ids; nothing can be deleted.
#
# Output seen:
#   Ann alone: e1, e2
#   Bob stored 20 notes about invoices: e2, e1
#   Cy stored 60 notes about holidays: e1, e2
#   ids: 1, 2
#   delete: NotImplementedError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check google-adk==2.13.0 aiosqlite==0.22.1
cat > "$folder/seen.py" <<'PYTHON'
import asyncio
import sys

from google.adk.events.event import Event
from google.adk.memory import SqliteMemoryService
from google.genai import types


def notes(*texts, name):
    return [
        Event(
            id=f"{name}{number}",
            author="user",
            timestamp=1.0,
            content=types.Content(role="user", parts=[types.Part(text=text)]),
        )
        for number, text in enumerate(texts, 1)
    ]


async def main():
    service = SqliteMemoryService(sys.argv[1])

    async def add(user, events):
        await service.add_events_to_memory(app_name="shop", user_id=user, events=events, session_id="s")

    async def found():
        answer = await service.search_memory(app_name="shop", user_id="ann", query="invoice holiday")
        return answer.memories

    async def order():
        return ", ".join(memory.custom_metadata["event_id"] for memory in await found())

    await add("ann", notes("invoice from the printer shop", "holiday plan for the summer", name="e"))
    print("Ann alone:", await order())
    await add("bob", notes(*(f"invoice number {number}" for number in range(20)), name="b"))
    print("Bob stored 20 notes about invoices:", await order())
    await add("cy", notes(*(f"holiday number {number}" for number in range(60)), name="c"))
    print("Cy stored 60 notes about holidays:", await order())
    print("ids:", ", ".join(memory.id for memory in await found()))
    try:
        await service.delete_memory(app_name="shop", user_id="ann", memory_id="1")
    except NotImplementedError as error:
        print("delete:", type(error).__name__)


asyncio.run(main())
PYTHON
cat > "$folder/expected" <<'TEXT'
Ann alone: e1, e2
Bob stored 20 notes about invoices: e2, e1
Cy stored 60 notes about holidays: e1, e2
ids: 1, 2
delete: NotImplementedError
TEXT
HOME=$folder "$folder/venv/bin/python" "$folder/seen.py" "$folder/memory.db" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
