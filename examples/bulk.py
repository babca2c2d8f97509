"""Publish many events, as a table and as a stream: `python bulk.py DIR`."""

import sys

import pyarrow as pa

from headgate.client import connect

with connect.from_directory(sys.argv[1], "till") as client:
    table = pa.table({"item": [f"book {n}" for n in range(1000)], "amount": [float(n) for n in range(1000)]})
    print(client.publish_arrow("shop.Sale", table).accepted, "rows")
    with client.batch() as batch:
        for n in range(1000):
            batch.add("shop.Sale", {"item": f"pen {n}", "amount": 1.0})
    print(batch.accepted, "events")
