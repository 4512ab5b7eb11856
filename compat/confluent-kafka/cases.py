"""librdkafka, through confluent-kafka for Python."""

import confluent_kafka as kafka
import harness
import scenarios
from confluent_kafka import admin
from harness import Record


def record_of(message):
    if message.error():
        raise kafka.KafkaException(message.error())
    return Record(message.key(), message.value(), message.headers() or [], message.timestamp()[1], message.offset())


class Member:
    def __init__(self, settings, topic):
        self.consumer, self.assigned = kafka.Consumer(settings), 0
        self.consumer.subscribe([topic], on_assign=self.on_assign)

    def on_assign(self, *_):
        self.assigned += 1

    def poll(self, count=100):
        return [record_of(message) for message in self.consumer.consume(count, 0.2)]

    def assignment(self):
        return sorted(partition.partition for partition in self.consumer.assignment())

    def rebalances(self):
        return self.assigned

    def commit(self, topic, offset):
        self.consumer.commit(offsets=[kafka.TopicPartition(topic, 0, offset)], asynchronous=False)

    def close(self):
        self.consumer.close()

    # A static member does not leave when it closes.
    abandon = close


class Driver:
    client = "confluent-kafka"
    null_headers = True

    def __init__(self, bootstrap, secure=None):
        self.bootstrap = {"bootstrap.servers": bootstrap, "client.id": self.client}
        if secure:
            self.bootstrap |= {"security.protocol": secure.protocol, "ssl.ca.location": secure.authority}
        if secure and secure.mechanism:
            self.bootstrap |= {"sasl.mechanism": secure.mechanism, "sasl.username": secure.user, "sasl.password": secure.password}
        self.admin = admin.AdminClient(self.bootstrap)

    def create(self, topic, partitions, config):
        self.admin.create_topics([admin.NewTopic(topic, partitions, 1, config=config)])[topic].result(30)

    def refused(self, secure):
        codes = []
        other = kafka.Producer(Driver(secure.bootstrap, secure).bootstrap | {"error_cb": lambda error: codes.append(error.code())})

        def told():
            other.poll(0.2)
            return kafka.KafkaError._AUTHENTICATION in codes

        harness.wait_until("the error", told, True, 30)
        return True

    def already_exists(self, error):
        return error.args[0].code() == kafka.KafkaError.TOPIC_ALREADY_EXISTS

    def produce(self, topic, records, codec="none", idempotent=False):
        failures = []
        producer = kafka.Producer(self.bootstrap | {"linger.ms": 20, "compression.type": codec, "enable.idempotence": idempotent})
        for record in records:
            time = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(topic, record.value, record.key, 0, headers=record.headers, on_delivery=lambda error, _: error and failures.append(error), **time)
        harness.expect("records without an acknowledgement", producer.flush(30), 0)
        harness.expect("failed records", failures, [])

    def read(self, topic, count, offset=0):
        reader = kafka.Consumer(self.bootstrap | {"group.id": "reader"})
        reader.assign([kafka.TopicPartition(topic, 0, offset)])
        records = harness.collect(count, lambda: [record_of(message) for message in reader.consume(count, 0.2)])
        reader.close()
        return records

    def offset_at(self, topic, time):
        reader = kafka.Consumer(self.bootstrap | {"group.id": "reader"})
        offset = reader.offsets_for_times([kafka.TopicPartition(topic, 0, time)], timeout=20)[0].offset
        reader.close()
        return None if offset == kafka.OFFSET_END else offset

    def bounds(self, topic):
        partition = kafka.TopicPartition(topic, 0)
        ends = (admin.OffsetSpec.earliest(), admin.OffsetSpec.latest())
        return tuple(self.admin.list_offsets({partition: end})[partition].result(30).offset for end in ends)

    def member(self, group, topic, instance=None):
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 500}
        if instance:
            settings["group.instance.id"] = instance
        return Member(self.bootstrap | settings, topic)

    def partitions(self, topic):
        shown = self.admin.describe_topics(kafka.TopicCollection([topic]))[topic].result(30)
        return {partition.id: -1 if partition.leader is None else partition.leader.id for partition in shown.partitions}

    def configs(self, topic):
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
        return {key: entry.value for key, entry in self.admin.describe_configs([resource])[resource].result(30).items()}

    def set_config(self, topic, key, value):
        entry = admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def grow(self, topic, count):
        self.admin.create_partitions([admin.NewPartitions(topic, count)])[topic].result(30)

    def delete_records(self, topic, before):
        partition = kafka.TopicPartition(topic, 0, before)
        harness.expect("the answered offset", self.admin.delete_records([partition])[partition].result(30).low_watermark, before)

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])[topic].result(30)

    def topics(self):
        return self.admin.list_topics(timeout=20).topics

    def store_offset(self, group, topic, offset):
        request = [kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(topic, 0, offset)])]
        for future in self.admin.alter_consumer_group_offsets(request).values():
            future.result(30)

    def groups(self):
        return [group.group_id for group in self.admin.list_consumer_groups().result(30).valid]

    def describe_group(self, group):
        shown = self.admin.describe_consumer_groups([group])[group].result(30)
        return shown.state.name, [member.client_id for member in shown.members]

    def delete_group(self, group):
        self.admin.delete_consumer_groups([group])[group].result(30)


harness.main(Driver, f"{kafka.version()} (librdkafka {kafka.libversion()[0]})", scenarios.CASES)
