"""The cases, in terms of what a driver can do.

A driver is made of an address, and of a `Secure` where the listener there is secured. It has: `create`, `already_exists` (whether an error says so), `produce`, `read`, `offset_at`, `bounds`, `member`, `partitions`, `configs`,
`set_config`, `grow`, `delete_records`, `delete_topic`, `topics`, `store_offset`, `groups`, `describe_group`, `delete_group`; where it connects with a password, `refused` (whether a client that has another one is told that it is wrong).
A member has: `poll`, `assignment`, `rebalances`, `commit`, `close`, and `abandon`, which goes without leaving the group.
"""

import os

from harness import Record, Secure, collect, expect, wait_until

# A fixed moment, in milliseconds.
MOMENT = 1_700_000_000_000
MANY = [(f"key {number % 7}".encode(), f"record {number:06} of a text that compresses well".encode()) for number in range(500)]
NUMBERS = [f"{number}".encode() for number in range(20)]


def name(driver, case):
    """The topic and the group of a case."""
    return f"{os.environ.get('COMPAT_RUN', 'c')}-{driver.client}-{case}"


def topic_of(driver, case, partitions=1, config=None):
    topic = name(driver, case)
    driver.create(topic, partitions, config or {})
    # Apache Kafka answers before all that it says elsewhere knows of it.
    wait_until("the partitions of a new topic", lambda: sorted(driver.partitions(topic)), list(range(partitions)))
    return topic


def read_all(driver, topic, count):
    """All records, and that there are no more."""
    records = driver.read(topic, count)
    expect("offsets", [record.offset for record in records], list(range(count)))
    expect("the ends of the log", driver.bounds(topic), (0, count))
    return records


def round_trip(case, **settings):
    def run(driver):
        topic = topic_of(driver, case)
        driver.produce(topic, [Record(key, value) for key, value in MANY], **settings)
        expect("records", [(record.key, record.value) for record in read_all(driver, topic, len(MANY))], MANY)

    return run


def keys(driver):
    topic, sent = topic_of(driver, "keys"), [None, b"", b"\xff\x00\xfe"]
    driver.produce(topic, [Record(key, b"v") for key in sent])
    expect("keys", [record.key for record in read_all(driver, topic, 3)], sent)


def headers(driver):
    topic, sent = topic_of(driver, "headers"), [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b"")]
    if not driver.null_headers:
        sent.pop(2)
    driver.produce(topic, [Record(None, b"v", sent)])
    expect("headers", read_all(driver, topic, 1)[0].headers, sent)


def tombstones(driver):
    topic, sent = topic_of(driver, "tombstones"), [b"v", None, b""]
    driver.produce(topic, [Record(b"k", value) for value in sent])
    expect("values", [record.value for record in read_all(driver, topic, 3)], sent)


def timestamps(driver):
    topic, sent = topic_of(driver, "timestamps"), [MOMENT, MOMENT + 1, MOMENT - 5000]
    driver.produce(topic, [Record(None, b"v", timestamp=at) for at in sent])
    expect("times", [record.timestamp for record in read_all(driver, topic, 3)], sent)


def seek_by_time(driver):
    topic = topic_of(driver, "seek-by-time")
    driver.produce(topic, [Record(None, NUMBERS[i], timestamp=MOMENT + i * 1000) for i in range(10)])
    found = driver.offset_at(topic, MOMENT + 3500)
    expect("the offset of the time", found, 4)
    expect("the record there", driver.read(topic, 1, found)[0].value, b"4")
    expect("the offset of a time behind all", driver.offset_at(topic, MOMENT + 99_000), None)


def shares(*members):
    """How many partitions each has. Polls, as that is what moves a rebalance on."""
    for member in members:
        member.poll()
    return [len(member.assignment()) for member in members]


def group_rebalance(driver):
    topic = topic_of(driver, "group-rebalance", 4)
    one, two = driver.member(topic, topic), driver.member(topic, topic)
    wait_until("two partitions each", lambda: shares(one, two), [2, 2])
    expect("the partitions of both", sorted(one.assignment() + two.assignment()), [0, 1, 2, 3])
    two.close()
    wait_until("all partitions for the one that stays", lambda: shares(one), [4])
    one.close()


def read_ten_and_commit(driver, case):
    topic = topic_of(driver, case)
    driver.produce(topic, [Record(None, value) for value in NUMBERS])
    member = driver.member(topic, topic)
    records = collect(10, lambda: member.poll(1))
    expect("the first ten", [record.value for record in records], NUMBERS[:10])
    member.commit(topic, 10)
    member.close()


def go_on(driver, case):
    member = driver.member(name(driver, case), name(driver, case))
    expect("the rest", [record.value for record in collect(10, lambda: member.poll(1))], NUMBERS[10:])
    member.close()


def group_continue(driver):
    read_ten_and_commit(driver, "group-continue")
    go_on(driver, "group-continue")


def connected(driver, secure):
    return type(driver)(secure.bootstrap, secure)


def tls(driver):
    encrypted = connected(driver, Secure())
    round_trip("tls")(encrypted)
    read_ten_and_commit(encrypted, "tls-group")
    go_on(encrypted, "tls-group")


def sasl(case, first, second):
    """Whoever logs in by the one mechanism writes, and by the other one goes on reading; with another password nobody gets in."""

    def run(driver):
        writes, reads = (connected(driver, Secure(mechanism)) for mechanism in (first, second))
        round_trip(case)(writes)
        read_ten_and_commit(writes, f"{case}-group")
        go_on(reads, f"{case}-group")
        for mechanism in {first, second}:
            expect(f"the word on a wrong password by {mechanism}", driver.refused(Secure(mechanism, right=False)), True)

    return run


def static_member(driver):
    topic = topic_of(driver, "static-member", 4)
    stays, goes = driver.member(topic, topic, "stays"), driver.member(topic, topic, "goes")
    wait_until("two partitions each", lambda: shares(stays, goes), [2, 2])
    had, seen = goes.assignment(), stays.rebalances()
    goes.abandon()
    back = driver.member(topic, topic, "goes")
    wait_until("its partitions again", lambda: shares(stays, back), [2, 2])
    expect("the partitions after its return", back.assignment(), had)
    expect("the rebalances of the other", stays.rebalances(), seen)
    stays.close()
    back.close()


def admin_create(driver):
    topic = topic_of(driver, "admin-create", 3, {"retention.ms": "86400000"})
    try:
        driver.create(topic, 3, {})
    except Exception as error:
        expect(f"whether [{error}] says that it exists", driver.already_exists(error), True)
    else:
        raise AssertionError("a topic was created twice")


def admin_describe(driver):
    topic = topic_of(driver, "admin-describe", 3, {"retention.ms": "86400000"})
    expect("whether all have a leader", [leader >= 0 for leader in driver.partitions(topic).values()], [True] * 3)
    configs = driver.configs(topic)
    expect("retention.ms", configs.get("retention.ms"), "86400000")
    expect("cleanup.policy", configs.get("cleanup.policy"), "delete")


def admin_alter_config(driver):
    topic = topic_of(driver, "admin-alter-config")
    driver.set_config(topic, "retention.ms", "3600000")
    wait_until("retention.ms", lambda: driver.configs(topic).get("retention.ms"), "3600000")


def admin_grow(driver):
    topic = topic_of(driver, "admin-grow")
    driver.grow(topic, 3)
    wait_until("the partitions", lambda: sorted(driver.partitions(topic)), [0, 1, 2])


def admin_list_offsets(driver):
    topic = topic_of(driver, "admin-list-offsets")
    driver.produce(topic, [Record(None, b"v")] * 10)
    expect("the ends of the log", driver.bounds(topic), (0, 10))


def admin_reset_offsets(driver):
    topic = name(driver, "admin-reset-offsets")
    read_ten_and_commit(driver, "admin-reset-offsets")
    driver.store_offset(topic, topic, 3)
    member = driver.member(topic, topic)
    expect("the records from there", [record.value for record in collect(17, lambda: member.poll(1))], NUMBERS[3:])
    member.close()


def admin_delete_records(driver):
    topic = topic_of(driver, "admin-delete-records")
    driver.produce(topic, [Record(None, b"v")] * 10)
    driver.delete_records(topic, 5)
    expect("the ends of the log", driver.bounds(topic), (5, 10))


def admin_delete_topic(driver):
    topic = topic_of(driver, "admin-delete-topic")
    wait_until("listed after its creation", lambda: topic in driver.topics(), True)
    driver.delete_topic(topic)
    wait_until("listed after its deletion", lambda: topic in driver.topics(), False)


def group_with_an_offset(driver, case):
    topic = topic_of(driver, case)
    driver.store_offset(topic, topic, 0)
    wait_until("whether the group is listed", lambda: topic in driver.groups(), True)
    return topic


def admin_describe_group(driver):
    topic = topic_of(driver, "admin-describe-group", 2)
    member = driver.member(topic, topic)
    wait_until("its partitions", lambda: shares(member), [2])
    state, clients = driver.describe_group(topic)
    expect("its state", state.lower(), "stable")
    expect("its members", clients, [driver.client])
    member.close()


def admin_delete_group(driver):
    group = group_with_an_offset(driver, "admin-delete-group")
    driver.delete_group(group)
    wait_until("whether the group is listed after its deletion", lambda: group in driver.groups(), False)


CASES = {f"codec-{codec}": round_trip(f"codec-{codec}", codec=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")} | {
    "keys": keys,
    "headers": headers,
    "tombstones": tombstones,
    "timestamps": timestamps,
    "seek-by-time": seek_by_time,
    "idempotent": round_trip("idempotent", idempotent=True),
    "group-rebalance": group_rebalance,
    "group-continue": group_continue,
    "static-member": static_member,
    "tls": tls,
    "sasl-plain": sasl("sasl-plain", "PLAIN", "PLAIN"),
    "sasl-scram": sasl("sasl-scram", "SCRAM-SHA-512", "SCRAM-SHA-256"),
    "restart-before": lambda driver: read_ten_and_commit(driver, "restart"),
    "restart-after": lambda driver: go_on(driver, "restart"),
    "admin-create": admin_create,
    "admin-describe": admin_describe,
    "admin-alter-config": admin_alter_config,
    "admin-grow": admin_grow,
    "admin-list-offsets": admin_list_offsets,
    "admin-reset-offsets": admin_reset_offsets,
    "admin-delete-records": admin_delete_records,
    "admin-delete-topic": admin_delete_topic,
    "admin-list-groups": lambda driver: group_with_an_offset(driver, "admin-list-groups"),
    "admin-describe-group": admin_describe_group,
    "admin-delete-group": admin_delete_group,
}
