"""Reads what Kafka clients wrote to the topic `greetings`, and adds a message. Needs `pip install apache-iggy==0.9.0`."""

import asyncio
import os

from apache_iggy import Consumer, IggyClient, PollingStrategy, SendMessage


async def main() -> None:
    iggy = IggyClient(os.environ.get("IGGY_ADDRESS", "127.0.0.1:8090"))
    await iggy.connect()
    await iggy.login_user("iggy", os.environ.get("IGGY_PASSWORD", "secret"))
    polled = await iggy.poll_messages(
        "kafka",
        "greetings",
        partition_id=0,
        consumer=Consumer.Single(1),
        polling_strategy=PollingStrategy.First(),
        count=10,
        auto_commit=False,
    )
    for message in polled:
        print(message.offset(), message.payload().decode())
    await iggy.send_messages("kafka", "greetings", 0, [SendMessage("from iggy")])


asyncio.run(main())
