"""Print the first sales: `python subscribe.py DIR [COUNT]`. Run it again, and it goes on where it was."""

import sys
from itertools import islice

from headgate.client import connect

with connect.from_directory(sys.argv[1], "ann") as client:
    sales = client.subscribe("sales", "shop.Sale", from_="start")
    for delivery in islice(sales, int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        print(delivery.publisher, delivery.data["item"], delivery.data["amount"])
    sales.ack()
