"""The newest entry of each key, then what changes: `python lookup.py DIR TYPE`, with a type that has a key."""

import sys

from headgate.client import connect

with connect.from_directory(sys.argv[1], "ann") as client:
    entries, changes = client.lookup("board", sys.argv[2])
    for entry in entries:
        print("now", entry.data)
    if change := changes.next(timeout=1):
        print("then", change.data)
