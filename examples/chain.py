"""Publish at another organisation by certificates alone: `python chain.py URL KEY TLS CHAIN`, the last three files."""

import sys
from pathlib import Path

from headgate.client import connect

url, key, tls, chain = sys.argv[1:5]
with connect(url, Path(key), certificate=Path(tls), present=[Path(chain)]) as client:
    result = client.publish("shop.Sale", {"item": "tea", "amount": 4.5})
    print(result.status, "as", client.principal)
