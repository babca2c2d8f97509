"""Publish one event: `python publish.py DIR`, with the directory of a running domain."""

import sys

from headgate.client import connect

with connect.from_directory(sys.argv[1], "till") as client:
    result = client.publish("shop.Sale", {"item": "tea", "amount": 4.5})
    print(result.status, result.id)
