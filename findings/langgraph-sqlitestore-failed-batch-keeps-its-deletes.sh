#!/usr/bin/env bash
# langgraph-checkpoint-sqlite 3.1.2, SqliteStore: a batch that fails keeps its deletes, although it runs in a transaction.
#
# Guess: `batch` is one transaction, so an error leaves the store as it was.
# Seen: the end of the block is COMMIT with and without an error, never ROLLBACK. Deletes run before puts; so a batch that
# moves a memory to other keys, and fails at the puts, has removed the memory and written nothing. Here the puts take more
# parameters than SQLite's default of 32,766 a statement, at five an item; the limit is set here, as some systems build
# SQLite with a larger one. So a move puts first, reads back what it put, and deletes in a batch of its own.
#
# Output seen:
#   before: notes
#   delete 1, put 7000: OperationalError: too many SQL variables
#   after: nothing
#   in a transaction: False
#   delete 1, put 1: stored, after: note0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-checkpoint-sqlite==3.1.2 langgraph-checkpoint==4.3.2
cat > "$folder/seen.py" <<'PYTHON'
import sqlite3
import sys

from langgraph.store.base import PutOp
from langgraph.store.sqlite import SqliteStore

USER = ("ann",)
connection = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32766)
store = SqliteStore(connection)
store.setup()


def held():
    return ", ".join(item.key for item in store.search(USER)) or "nothing"


def move(count):
    puts = [PutOp(USER, f"note{number}", {"text": f"Order {number} goes to Ann."}) for number in range(count)]
    try:
        store.batch([PutOp(USER, "notes", None), *puts])
    except sqlite3.OperationalError as error:
        return f"delete 1, put {count}: {type(error).__name__}: {error}"
    return f"delete 1, put {count}: stored"


store.put(USER, "notes", {"text": "All orders go to Ann."})
print("before:", held())
print(move(7000))
print("after:", held())
print("in a transaction:", connection.in_transaction)
store.put(USER, "notes", {"text": "All orders go to Ann."})
print(f"{move(1)}, after: {held()}")
PYTHON
cat > "$folder/expected" <<'TEXT'
before: notes
delete 1, put 7000: OperationalError: too many SQL variables
after: nothing
in a transaction: False
delete 1, put 1: stored, after: note0
TEXT
"$folder/venv/bin/python" "$folder/seen.py" "$folder/store.db" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'
