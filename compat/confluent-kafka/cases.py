"""librdkafka, through confluent-kafka for Python."""

import functools
import time

import confluent_kafka as kafka
import harness
from confluent_kafka import admin as kadmin
from harness import MOMENT, RECORDS, expect, wait_until

CLIENT = "confluent-kafka"


def name(case):
    return harness.name(CLIENT, case)


@functools.cache
def admin(bootstrap):
    """One for all cases: what it still does ends with it."""
    return kadmin.AdminClient({"bootstrap.servers": bootstrap})


def create(bootstrap, topic, partitions=1, config=None):
    new = kadmin.NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    admin(bootstrap).create_topics([new])[topic].result(30)


def produce(bootstrap, topic, records, **settings):
    """Each record is a dictionary of the arguments of `produce`. All of them must be acknowledged."""
    failures = []
    producer = kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20} | {key.replace("_", "."): value for key, value in settings.items()})
    for record in records:
        producer.produce(topic, partition=0, on_delivery=lambda error, _: error and failures.append(error), **record)
    expect("records without an acknowledgement", producer.flush(30), 0)
    expect("failed records", failures, [])


def consumer(bootstrap, group, **settings):
    return kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10000,
            "heartbeat.interval.ms": 500,
        }
        | settings
    )


def take(member, count, seconds=40):
    """The next `count` messages."""
    messages, end = [], time.monotonic() + seconds
    while len(messages) < count and time.monotonic() < end:
        message = member.poll(0.2)
        if message is None:
            continue
        if message.error():
            raise kafka.KafkaException(message.error())
        messages.append(message)
    expect("messages", len(messages), count)
    return messages


def read(bootstrap, topic, count, offset=0):
    """All of partition 0 from `offset` on, and that nothing follows."""
    reader = consumer(bootstrap, name("reader"))
    reader.assign([kafka.TopicPartition(topic, 0, offset)])
    messages = take(reader, count)
    low, high = reader.get_watermark_offsets(kafka.TopicPartition(topic, 0), timeout=10)
    expect("the end", high, messages[-1].offset() + 1)
    reader.close()
    return messages


def codec(which):
    def case(bootstrap):
        topic = name(f"codec-{which}")
        create(bootstrap, topic)
        produce(bootstrap, topic, [{"key": key, "value": value} for key, value in RECORDS], compression_type=which)
        expect("records", [(m.key(), m.value()) for m in read(bootstrap, topic, len(RECORDS))], RECORDS)

    return case


def keys(bootstrap):
    topic, sent = name("keys"), [None, b"", b"\xff\x00\xfe"]
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"key": key, "value": b"v"} for key in sent])
    expect("keys", [m.key() for m in read(bootstrap, topic, 3)], sent)


def headers(bootstrap):
    topic, sent = name("headers"), [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b"")]
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"v", "headers": sent}])
    expect("headers", read(bootstrap, topic, 1)[0].headers(), sent)


def tombstones(bootstrap):
    topic = name("tombstones")
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"key": b"k", "value": value} for value in (b"v", None, b"")])
    expect("values", [m.value() for m in read(bootstrap, topic, 3)], [b"v", None, b""])


def timestamps(bootstrap):
    topic, sent = name("timestamps"), [MOMENT, MOMENT + 1, MOMENT - 5000]
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"v", "timestamp": at} for at in sent])
    expect("times", [m.timestamp() for m in read(bootstrap, topic, 3)], [(kafka.TIMESTAMP_CREATE_TIME, at) for at in sent])


def seek_by_time(bootstrap):
    topic = name("seek-by-time")
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": f"{i}".encode(), "timestamp": MOMENT + i * 1000} for i in range(10)])
    asking = consumer(bootstrap, name("seek-by-time"))
    found = asking.offsets_for_times([kafka.TopicPartition(topic, 0, MOMENT + 3500)], timeout=20)[0].offset
    expect("the offset of the time", found, 4)
    behind = asking.offsets_for_times([kafka.TopicPartition(topic, 0, MOMENT + 99000)], timeout=20)[0].offset
    expect("a time behind all", behind, kafka.OFFSET_END)
    asking.close()
    expect("the record there", read(bootstrap, topic, 6, offset=4)[0].value(), b"4")


def idempotent(bootstrap):
    topic = name("idempotent")
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"key": key, "value": value} for key, value in RECORDS], enable_idempotence=True)
    expect("records", [(m.key(), m.value()) for m in read(bootstrap, topic, len(RECORDS))], RECORDS)


def shares(members):
    """How many partitions each has; polls, as that is what moves a rebalance on."""
    for member in members:
        member.poll(0.1)
    return [len(member.assignment()) for member in members]


def group_rebalance(bootstrap):
    topic = name("group-rebalance")
    create(bootstrap, topic, partitions=4)
    one, two = consumer(bootstrap, topic), consumer(bootstrap, topic)
    for member in (one, two):
        member.subscribe([topic])
    wait_until("two partitions each", lambda: shares([one, two]) == [2, 2])
    expect("partitions of both", sorted(p.partition for m in (one, two) for p in m.assignment()), [0, 1, 2, 3])
    two.close()
    wait_until("all four", lambda: shares([one]) == [4])
    one.close()


def read_ten_and_commit(bootstrap, topic):
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": f"{i}".encode()} for i in range(20)])
    member = consumer(bootstrap, topic)
    member.subscribe([topic])
    expect("the first ten", [m.value() for m in take(member, 10)], [f"{i}".encode() for i in range(10)])
    member.commit(offsets=[kafka.TopicPartition(topic, 0, 10)], asynchronous=False)
    member.close()


def go_on(bootstrap, topic):
    member = consumer(bootstrap, topic)
    member.subscribe([topic])
    expect("the rest", [m.value() for m in take(member, 10)], [f"{i}".encode() for i in range(10, 20)])
    member.close()


def group_continue(bootstrap):
    read_ten_and_commit(bootstrap, name("group-continue"))
    go_on(bootstrap, name("group-continue"))


def static_member(bootstrap):
    topic = name("static-member")
    create(bootstrap, topic, partitions=4)
    rebalances = []
    settings = {"session.timeout.ms": 30000}
    stays = consumer(bootstrap, topic, **settings, **{"group.instance.id": "stays"})
    goes = consumer(bootstrap, topic, **settings, **{"group.instance.id": "goes"})
    stays.subscribe([topic], on_assign=lambda _, parts: rebalances.append(len(parts)))
    goes.subscribe([topic])
    wait_until("two partitions each", lambda: shares([stays, goes]) == [2, 2])
    had, seen = sorted(p.partition for p in goes.assignment()), len(rebalances)
    # A static member does not leave the group when it closes.
    goes.close()
    back = consumer(bootstrap, topic, **settings, **{"group.instance.id": "goes"})
    back.subscribe([topic])
    wait_until("its partitions again", lambda: shares([stays, back]) == [2, 2])
    expect("partitions after its return", sorted(p.partition for p in back.assignment()), had)
    expect("rebalances of the other", len(rebalances), seen)
    stays.close()
    back.close()


def admin_create(bootstrap):
    topic = name("admin-create")
    create(bootstrap, topic, partitions=3, config={"retention.ms": "86400000"})
    try:
        create(bootstrap, topic, partitions=3)
    except kafka.KafkaException as error:
        expect("the refusal", error.args[0].code(), kafka.KafkaError.TOPIC_ALREADY_EXISTS)
    else:
        raise AssertionError("a topic was created twice")


def configs(bootstrap, topic):
    resource = kadmin.ConfigResource(kadmin.ResourceType.TOPIC, topic)
    return {key: entry.value for key, entry in admin(bootstrap).describe_configs([resource])[resource].result(30).items()}


def admin_describe(bootstrap):
    topic = name("admin-describe")
    create(bootstrap, topic, partitions=3, config={"retention.ms": "86400000"})
    shown = admin(bootstrap).describe_topics(kafka.TopicCollection([topic]))[topic].result(30)
    expect("partitions", [p.id for p in shown.partitions], [0, 1, 2])
    expect("leaders", all(p.leader is not None and p.leader.id >= 0 for p in shown.partitions), True)
    found = configs(bootstrap, topic)
    expect("retention.ms", found["retention.ms"], "86400000")
    expect("cleanup.policy", found["cleanup.policy"], "delete")


def admin_alter_config(bootstrap):
    topic = name("admin-alter-config")
    create(bootstrap, topic)
    entry = kadmin.ConfigEntry("retention.ms", "3600000", incremental_operation=kadmin.AlterConfigOpType.SET)
    resource = kadmin.ConfigResource(kadmin.ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin(bootstrap).incremental_alter_configs([resource])[resource].result(30)
    expect("retention.ms", configs(bootstrap, topic)["retention.ms"], "3600000")


def admin_grow(bootstrap):
    topic = name("admin-grow")
    create(bootstrap, topic)
    admin(bootstrap).create_partitions([kadmin.NewPartitions(topic, 3)])[topic].result(30)
    expect("partitions", len(admin(bootstrap).list_topics(topic, timeout=20).topics[topic].partitions), 3)


def offset(bootstrap, topic, spec):
    partition = kafka.TopicPartition(topic, 0)
    return admin(bootstrap).list_offsets({partition: spec})[partition].result(30).offset


def admin_list_offsets(bootstrap):
    topic = name("admin-list-offsets")
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"v"}] * 10)
    expect("the first offset", offset(bootstrap, topic, kadmin.OffsetSpec.earliest()), 0)
    expect("the last offset", offset(bootstrap, topic, kadmin.OffsetSpec.latest()), 10)


def store_offset(bootstrap, topic, at):
    """Offsets of a group that has no members."""
    partitions = [kafka.TopicPartition(topic, 0, at)]
    request = [kafka.ConsumerGroupTopicPartitions(topic, partitions)]
    for future in admin(bootstrap).alter_consumer_group_offsets(request).values():
        future.result(30)


def admin_reset_offsets(bootstrap):
    topic = name("admin-reset-offsets")
    read_ten_and_commit(bootstrap, topic)
    store_offset(bootstrap, topic, 3)
    member = consumer(bootstrap, topic)
    member.subscribe([topic])
    expect("the first record", take(member, 1)[0].value(), b"3")
    member.close()


def admin_delete_records(bootstrap):
    topic = name("admin-delete-records")
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"v"}] * 10)
    partition = kafka.TopicPartition(topic, 0, 5)
    deleted = admin(bootstrap).delete_records([partition])[partition].result(30)
    expect("the answered offset", deleted.low_watermark, 5)
    expect("the first offset", offset(bootstrap, topic, kadmin.OffsetSpec.earliest()), 5)


def admin_delete_topic(bootstrap):
    topic = name("admin-delete-topic")
    create(bootstrap, topic)
    expect("listed before", topic in admin(bootstrap).list_topics(timeout=20).topics, True)
    admin(bootstrap).delete_topics([topic])[topic].result(30)
    wait_until("gone from the list", lambda: topic not in admin(bootstrap).list_topics(timeout=20).topics)


def groups(bootstrap):
    return {group.group_id for group in admin(bootstrap).list_consumer_groups().result(30).valid}


def admin_list_groups(bootstrap):
    topic = name("admin-list-groups")
    create(bootstrap, topic)
    store_offset(bootstrap, topic, 0)
    expect("listed", topic in groups(bootstrap), True)


def admin_describe_group(bootstrap):
    topic = name("admin-describe-group")
    create(bootstrap, topic, partitions=2)
    member = consumer(bootstrap, topic, **{"client.id": "described"})
    member.subscribe([topic])
    wait_until("its partitions", lambda: shares([member]) == [2])
    shown = admin(bootstrap).describe_consumer_groups([topic])[topic].result(30)
    expect("state", shown.state, kafka.ConsumerGroupState.STABLE)
    expect("members", [m.client_id for m in shown.members], ["described"])
    expect("its partitions", sorted(p.partition for p in shown.members[0].assignment.topic_partitions), [0, 1])
    member.close()


def admin_delete_group(bootstrap):
    topic = name("admin-delete-group")
    create(bootstrap, topic)
    store_offset(bootstrap, topic, 0)
    expect("listed before", topic in groups(bootstrap), True)
    admin(bootstrap).delete_consumer_groups([topic])[topic].result(30)
    expect("listed after", topic in groups(bootstrap), False)


CASES = {f"codec-{which}": codec(which) for which in harness.CODECS} | {
    "keys": keys,
    "headers": headers,
    "tombstones": tombstones,
    "timestamps": timestamps,
    "seek-by-time": seek_by_time,
    "idempotent": idempotent,
    "group-rebalance": group_rebalance,
    "group-continue": group_continue,
    "static-member": static_member,
    "restart-before": lambda bootstrap: read_ten_and_commit(bootstrap, name("restart")),
    "restart-after": lambda bootstrap: go_on(bootstrap, name("restart")),
    "admin-create": admin_create,
    "admin-describe": admin_describe,
    "admin-alter-config": admin_alter_config,
    "admin-grow": admin_grow,
    "admin-list-offsets": admin_list_offsets,
    "admin-reset-offsets": admin_reset_offsets,
    "admin-delete-records": admin_delete_records,
    "admin-delete-topic": admin_delete_topic,
    "admin-list-groups": admin_list_groups,
    "admin-describe-group": admin_describe_group,
    "admin-delete-group": admin_delete_group,
}

harness.main(CLIENT, f"{kafka.version()} (librdkafka {kafka.libversion()[0]})", CASES)
