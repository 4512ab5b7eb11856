"""aiokafka. Its loop has a thread of its own, and what the cases call waits for it."""

import asyncio
import threading

import aiokafka
import harness
import scenarios
from aiokafka import TopicPartition, errors, helpers
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from harness import Record

LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def wait(work):
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(60)


def record_of(message):
    return Record(message.key, message.value, message.headers, message.timestamp, message.offset)


async def next_of(consumer, count):
    batches = await consumer.getmany(timeout_ms=200, max_records=count)
    return [record_of(message) for messages in batches.values() for message in messages]


def must_be_fine(code, what=""):
    if code:
        raise errors.for_code(code)(what)


class Member(aiokafka.ConsumerRebalanceListener):
    def __init__(self, settings, topic):
        self.assigned = 0
        self.consumer = wait(self.started(settings, topic))

    async def started(self, settings, topic):
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        consumer.subscribe([topic], listener=self)
        await consumer.start()
        return consumer

    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        self.assigned += 1

    def poll(self, count=100):
        return wait(next_of(self.consumer, count))

    def assignment(self):
        return sorted(partition.partition for partition in self.consumer.assignment())

    def rebalances(self):
        return self.assigned

    def commit(self, topic, offset):
        wait(self.consumer.commit({TopicPartition(topic, 0): offset}))

    def close(self):
        wait(self.consumer.stop())

    # A static member does not leave when it stops.
    abandon = close


class Driver:
    client = "aiokafka"
    null_headers = True

    def __init__(self, bootstrap, secure=None):
        self.bootstrap = {"bootstrap_servers": bootstrap, "client_id": self.client}
        if secure:
            context = helpers.create_ssl_context(cafile=secure.authority)
            self.bootstrap |= {"security_protocol": secure.protocol, "ssl_context": context}
        if secure and secure.mechanism:
            self.bootstrap |= {"sasl_mechanism": secure.mechanism, "sasl_plain_username": secure.user, "sasl_plain_password": secure.password}
        self.admin = wait(self.connected())

    def refused(self, secure):
        def get_in():
            try:
                Driver(secure.bootstrap, secure)
            except errors.KafkaConnectionError:
                return
            raise AssertionError("any password will do")

        # Why it did not get in it says in its log alone.
        return any("AuthenticationFailed" in text for text in harness.logged("aiokafka", get_in))

    async def connected(self):
        admin = AIOKafkaAdminClient(**self.bootstrap)
        await admin.start()
        return admin

    def with_consumer(self, work, **settings):
        """What `work` makes of a consumer that is stopped again."""

        async def run():
            consumer = aiokafka.AIOKafkaConsumer(**self.bootstrap, **settings)
            await consumer.start()
            try:
                return await work(consumer)
            finally:
                await consumer.stop()

        return wait(run())

    def create(self, topic, partitions, config):
        answer = wait(self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)]))
        for _, code, message, *_ in answer.topic_errors:
            must_be_fine(code, message)

    def already_exists(self, error):
        return isinstance(error, errors.TopicAlreadyExistsError)

    def produce(self, topic, records, codec="none", idempotent=False):
        async def run():
            settings = {"linger_ms": 20, "acks": "all", "enable_idempotence": idempotent, "compression_type": None if codec == "none" else codec}
            async with aiokafka.AIOKafkaProducer(**self.bootstrap, **settings) as producer:
                sent = [await producer.send(topic, record.value, record.key, 0, record.timestamp, record.headers) for record in records]
                await asyncio.gather(*sent)

        wait(run())

    def read(self, topic, count, offset=0):
        async def work(consumer):
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, offset)
            records = []
            while len(records) < count:
                records += await next_of(consumer, count - len(records))
            return records

        return self.with_consumer(work)

    def offset_at(self, topic, time):
        partition = TopicPartition(topic, 0)
        found = self.with_consumer(lambda consumer: consumer.offsets_for_times({partition: time}))[partition]
        return found and found.offset

    def bounds(self, topic):
        partition = TopicPartition(topic, 0)

        async def work(consumer):
            return (await consumer.beginning_offsets([partition]))[partition], (await consumer.end_offsets([partition]))[partition]

        return self.with_consumer(work)

    def member(self, group, topic, instance=None):
        settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 500}
        return Member(self.bootstrap | settings | {"group_instance_id": instance, "session_timeout_ms": 30_000}, topic)

    def partitions(self, topic):
        shown = wait(self.admin.describe_topics([topic]))[0]
        return {partition["partition"]: partition["leader"] for partition in shown["partitions"]}

    def configs(self, topic):
        answer = wait(self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))[0].to_object()["resources"][0]
        must_be_fine(answer["error_code"], answer["error_message"])
        return {entry["config_names"]: entry["config_value"] for entry in answer["config_entries"]}

    def set_config(self, topic, key, value):
        for answer in wait(self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])):
            for resource in answer.to_object()["resources"]:
                must_be_fine(resource["error_code"], resource["error_message"])

    def grow(self, topic, count):
        wait(self.admin.create_partitions({topic: NewPartitions(count)}))

    def delete_records(self, topic, before):
        partition = TopicPartition(topic, 0)
        answer = wait(self.admin.delete_records({partition: RecordsToDelete(before)}))
        harness.expect("the answered offset", answer[partition], before)

    def delete_topic(self, topic):
        for _, code in wait(self.admin.delete_topics([topic])).topic_error_codes:
            must_be_fine(code)

    def topics(self):
        return wait(self.admin.list_topics())

    def store_offset(self, group, topic, offset):
        """Its admin client cannot; a consumer with an assigned partition can."""
        partition = TopicPartition(topic, 0)

        async def work(consumer):
            consumer.assign([partition])
            await consumer.commit({partition: offset})

        self.with_consumer(work, group_id=group, enable_auto_commit=False)

    def groups(self):
        return [group for group, *_ in wait(self.admin.list_consumer_groups())]

    def describe_group(self, group):
        shown = wait(self.admin.describe_consumer_groups([group]))[0].to_object()["groups"][0]
        must_be_fine(shown["error_code"])
        return shown["state"], [member["client_id"] for member in shown["members"]]


harness.main(Driver, aiokafka.__version__, scenarios.CASES)
