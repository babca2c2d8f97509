"""Print the first sales, from an event loop: `python async_subscribe.py DIR [COUNT]`."""

import asyncio
import sys

from headgate.client import aio


async def main(directory: str, left: int) -> None:
    """Read, acknowledging each delivery when it has been dealt with."""
    async with aio.connect.from_directory(directory, "ann") as client:
        sales = await client.subscribe("async-sales", "shop.Sale", from_="start", ack="manual")
        while left and (delivery := await sales.next()):
            print(delivery.id, delivery.data)
            delivery.ack()
            left -= 1
        await sales.settled()


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1))
