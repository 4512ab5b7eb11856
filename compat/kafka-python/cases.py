"""kafka-python."""

import threading
import time

import harness
import kafka
import scenarios
from harness import Record
from kafka import TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.structs import OffsetAndMetadata


def record_of(message):
    return Record(message.key, message.value, message.headers, message.timestamp, message.offset)


def records_of(batches):
    return [record_of(message) for messages in batches.values() for message in messages]


def must_be_fine(answers):
    for what, error in answers:
        if error is not errors.NoError and error is not None:
            raise AssertionError(f"{what}: {error}")


class Member(kafka.ConsumerRebalanceListener):
    """Polls in a thread of its own, since a poll that ends while the group rebalances throws away what it has learned (findings.md)."""

    def __init__(self, settings, topic):
        self.consumer, self.assigned, self.joined = kafka.KafkaConsumer(**settings), [], 0
        self.inbox, self.lock, self.open = [], threading.Lock(), True
        self.consumer.subscribe([topic], listener=self)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while self.open:
            with self.lock:
                self.inbox += records_of(self.consumer.poll(1000, max_records=1))
            # Lets a commit in.
            time.sleep(0.005)

    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        self.assigned, self.joined = sorted(partition.partition for partition in assigned), self.joined + 1

    def poll(self, count=100):
        time.sleep(0.02)
        records = self.inbox[:count]
        del self.inbox[:count]
        return records

    def assignment(self):
        return self.assigned

    def rebalances(self):
        return self.joined

    def commit(self, topic, offset):
        with self.lock:
            self.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})

    def close(self):
        self.open = False
        self.thread.join()
        self.consumer.close(autocommit=False)

    # A static member does not leave when it closes.
    abandon = close


class Driver:
    client = "kafka-python"
    null_headers = False

    def __init__(self, bootstrap, secure=None, **settings):
        self.bootstrap = {"bootstrap_servers": bootstrap, "client_id": self.client}
        if secure:
            self.bootstrap |= {"security_protocol": secure.protocol, "ssl_cafile": secure.authority}
        if secure and secure.mechanism:
            self.bootstrap |= {"sasl_mechanism": secure.mechanism, "sasl_plain_username": secure.user, "sasl_plain_password": secure.password}
        self.admin = kafka.KafkaAdminClient(**self.bootstrap, **settings)

    def consumer(self):
        return kafka.KafkaConsumer(**self.bootstrap)

    def create(self, topic, partitions, config):
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config}})

    def refused(self, secure):
        def get_in():
            try:
                Driver(secure.bootstrap, secure, bootstrap_timeout_ms=10_000)
            except errors.KafkaTimeoutError:
                return
            raise AssertionError("any password will do")

        # Why it did not get in it says in its log alone.
        return any("AuthenticationFailed" in text for text in harness.logged("kafka", get_in))

    def already_exists(self, error):
        return isinstance(error, errors.TopicAlreadyExistsError)

    def produce(self, topic, records, codec="none", idempotent=False):
        producer = kafka.KafkaProducer(
            **self.bootstrap, linger_ms=20, acks="all", enable_idempotence=idempotent, compression_type=None if codec == "none" else codec
        )
        sent = [producer.send(topic, record.value, record.key, record.headers, 0, record.timestamp) for record in records]
        for future in sent:
            future.get(30)
        producer.close()

    def read(self, topic, count, offset=0):
        reader, partition = self.consumer(), TopicPartition(topic, 0)
        reader.assign([partition])
        reader.seek(partition, offset)
        records = harness.collect(count, lambda: records_of(reader.poll(200, max_records=count)))
        reader.close()
        return records

    def offset_at(self, topic, time):
        reader, partition = self.consumer(), TopicPartition(topic, 0)
        found = reader.offsets_for_times({partition: time})[partition]
        reader.close()
        return found and found.offset

    def bounds(self, topic):
        partition = TopicPartition(topic, 0)
        return tuple(self.admin.list_partition_offsets({partition: end})[partition].offset for end in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))

    def member(self, group, topic, instance=None):
        settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 500}
        return Member(self.bootstrap | settings | {"group_instance_id": instance}, topic)

    def partitions(self, topic):
        return {partition["partition_index"]: partition["leader_id"] for partition in self.admin.describe_topics([topic])[0]["partitions"]}

    def configs(self, topic):
        found = self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        return {key: entry["value"] for key, entry in found["topic"][topic].items()}

    def set_config(self, topic, key, value):
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})], incremental=True)

    def grow(self, topic, count):
        self.admin.create_partitions({topic: count})

    def delete_records(self, topic, before):
        answer = self.admin.delete_records({TopicPartition(topic, 0): before})
        harness.expect("the answered offset", answer[TopicPartition(topic, 0)]["low_watermark"], before)

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])

    def topics(self):
        return self.admin.list_topics()

    def store_offset(self, group, topic, offset):
        must_be_fine(self.admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}).items())

    def groups(self):
        return [group["group_id"] for group in self.admin.list_groups()]

    def describe_group(self, group):
        shown = self.admin.describe_groups([group])[group]
        return shown["group_state"], [member["client_id"] for member in shown["members"]]

    def delete_group(self, group):
        harness.expect("the answer", self.admin.delete_groups([group]), {group: "OK"})


harness.main(Driver, kafka.__version__, scenarios.CASES)
