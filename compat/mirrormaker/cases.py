"""MirrorMaker 2 between Apache Kafka and Milena, in both directions."""

import os
import pathlib
import shutil
import socket
import subprocess

import harness
import kafka
from harness import expect, wait_until
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "target/compat/mirrormaker"
RUN = os.environ.get("COMPAT_RUN", "c")
# Virtual machines start, and MirrorMaker looks for new topics and groups from time to time.
SECONDS = 240
harness.CASE_SECONDS = 500
MOMENT = 1_700_000_000_000
# What MirrorMaker keeps at the other side of a way goes by the name of this one, which is another broker in each run.
KAFKA = f"kafka-{RUN}"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(command, log, **settings):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log.open("a"), stderr=subprocess.STDOUT, env=os.environ | settings)


class Cluster:
    """One of the two, and what the cases do with it."""

    def __init__(self, alias, bootstrap):
        self.alias = alias
        self.bootstrap = {"bootstrap_servers": bootstrap, "client_id": "mirrored"}
        self.admin = kafka.KafkaAdminClient(**self.bootstrap)

    def create(self, topic, partitions=1, **configs):
        # Times of records are far back, and Kafka would delete them for it.
        configs = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})

    def grow(self, topic, partitions):
        self.admin.create_partitions({topic: partitions})

    def partitions(self, topic):
        found = [one for one in self.admin.describe_topics() if one["name"] == topic]
        return len(found[0]["partitions"]) if found else 0

    def config(self, topic, key):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        shown = self.admin.describe_configs([resource], config_filter="all")
        return shown["topic"][topic][key]["value"]

    def send(self, topic, values, partition=0):
        producer = kafka.KafkaProducer(**self.bootstrap)
        sent = []
        for number, value in enumerate(values):
            headers = [("a", b"1"), ("a", str(number).encode())]
            sent.append(producer.send(topic, value, f"key {number}".encode(), headers=headers, partition=partition, timestamp_ms=MOMENT + number))
        producer.flush()
        for one in sent:
            one.get(30)
        producer.close()

    def read(self, topic, partition=0, offset=0):
        """Everything in a partition: key, value, headers and time."""
        reader = kafka.KafkaConsumer(**self.bootstrap)
        at = TopicPartition(topic, partition)
        reader.assign([at])
        last = reader.end_offsets([at])[at]
        reader.seek(at, offset)
        seen = []
        while reader.position(at) < last:
            for messages in reader.poll(200).values():
                seen += [(one.key, one.value, tuple(one.headers), one.timestamp) for one in messages]
        reader.close()
        return seen

    def commit(self, group, topic, offset):
        """In the name of the group, by a consumer that has its partition without it."""
        member = kafka.KafkaConsumer(group_id=group, enable_auto_commit=False, **self.bootstrap)
        member.assign([TopicPartition(topic, 0)])
        member.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
        member.close(autocommit=False)

    def offset(self, group, topic):
        stored = self.admin.list_group_offsets([group])[group].get(TopicPartition(topic, 0))
        return stored.offset if stored else -1

    def go_on(self, group, topic, until):
        """The values from the group's offset on, to the last one that is expected."""
        member = kafka.KafkaConsumer(group_id=group, auto_offset_reset="latest", enable_auto_commit=False, **self.bootstrap)
        member.assign([TopicPartition(topic, 0)])
        values = []

        def last():
            values.extend(one.value for messages in member.poll(200).values() for one in messages)
            return values[-1:] == [until]

        wait_until("the last value", last, True, SECONDS)
        member.close(autocommit=False)
        return values


class Mirror:
    client = "mirrormaker"

    def __init__(self, bootstrap):
        self.servers = {"milena": bootstrap, "kafka": f"127.0.0.1:{free_port()}"}
        # Where the next run finds it: one that is over its time is killed, and cleans up nothing.
        self.folder = TARGET / "kafka"
        shutil.rmtree(self.folder, ignore_errors=True)
        # On a loaded machine its start takes longer than it waits for by default.
        command = [ROOT / "compat/kafka", self.servers["kafka"].split(":")[1], self.folder, "initial.broker.registration.timeout.ms=300000"]
        self.broker = start(command, TARGET / "kafka.log", KAFKA_HEAP="384m")
        self.milena = Cluster("milena", bootstrap)
        wait_until("Apache Kafka answers", self.is_up, True, SECONDS)
        self.kafka = Cluster(KAFKA, self.servers["kafka"])
        self.process = None
        self.mirror()

    def is_up(self):
        try:
            socket.create_connection(tuple(self.servers["kafka"].split(":")), 1).close()
            return True
        except OSError:
            return False

    def mirror(self):
        settings = {
            "clusters": f"{KAFKA}, milena",
            f"{KAFKA}.bootstrap.servers": self.servers["kafka"],
            "milena.bootstrap.servers": self.servers["milena"],
            f"{KAFKA}->milena.enabled": "true",
            f"milena->{KAFKA}.enabled": "true",
            # What is mirrored once is not mirrored back: the default policy keeps it apart by the name.
            "topics": f"{RUN}-mirror-.*",
            "groups": f"{RUN}-mirror-.*",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "refresh.topics.interval.seconds": 2,
            "refresh.groups.interval.seconds": 2,
            "sync.topic.configs.interval.seconds": 2,
            "offset.lag.max": 0,
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 1000,
            "session.timeout.ms": 10000,
            "plugin.discovery": "service_load",
        }
        factors = ["replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor"]
        factors += [f"{what}.storage.replication.factor" for what in ("offset", "status", "config")]
        settings |= dict.fromkeys(factors, 1)
        file = TARGET / "mirrormaker.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        log4j = f"-Dlog4j2.configurationFile={pathlib.Path(__file__).parent / 'log4j2.properties'}"
        machine = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", log4j, "-cp", f"{TARGET / 'jars'}/*"]
        self.process = start(["java", *machine, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)], TARGET / "mirrormaker.log")

    def stop(self):
        for process in (self.process, self.broker):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ways(self):
        return [(self.kafka, self.milena), (self.milena, self.kafka)]


def topic_of(case, source):
    return f"{RUN}-mirror-{case}-from-{source.alias}", f"{source.alias}.{RUN}-mirror-{case}-from-{source.alias}"


def records_case(pick):
    def case(mirror):
        source, target = mirror.ways()[pick]
        topic, mirrored = topic_of("records", source)
        source.create(topic, 2, max_message_bytes="2000000")
        for partition in range(2):
            source.send(topic, [*(f"value {number}".encode() for number in range(100)), None, b""], partition)
        for partition in range(2):
            wait_until("the partition is there", lambda: target.partitions(mirrored), 2, SECONDS)
            wanted = source.read(topic, partition)
            expect("what was sent", len(wanted), 102)
            wait_until(f"records of partition {partition}", lambda: target.read(mirrored, partition), wanted, SECONDS)
        expect("its config", target.config(mirrored, "max.message.bytes"), "2000000")

    return case


def offsets_case(pick):
    """A group goes on at the other side: what it had not read is read, and not everything once more."""

    def case(mirror):
        source, target = mirror.ways()[pick]
        topic, mirrored = topic_of("offsets", source)
        group = f"{topic}-group"
        source.create(topic)
        source.send(topic, [f"{number}".encode() for number in range(100)])
        wait_until("the records", lambda: target.partitions(mirrored) and len(target.read(mirrored)), 100, SECONDS)
        source.commit(group, topic, 40)
        wait_until("the group is known there", lambda: target.offset(group, mirrored) > 0, True, SECONDS)
        source.commit(group, topic, 100)
        source.send(topic, [f"{number}".encode() for number in range(100, 110)])
        wait_until("more records", lambda: len(target.read(mirrored)), 110, SECONDS)
        wait_until("its new offset", lambda: target.offset(group, mirrored), 100, SECONDS)
        expect("what it goes on with", target.go_on(group, mirrored, b"109"), [f"{number}".encode() for number in range(100, 110)])

    return case


def grow(mirror):
    for source, target in mirror.ways():
        topic, mirrored = topic_of("grow", source)
        source.create(topic)
        wait_until("the topic", lambda: target.partitions(mirrored), 1, SECONDS)
        source.grow(topic, 3)
        wait_until("its partitions", lambda: target.partitions(mirrored), 3, SECONDS)


def restart(mirror):
    """What is sent while MirrorMaker is away comes later; what was there before may come twice, but is never missing."""
    pairs = [(source, target, *topic_of("restart", source)) for source, target in mirror.ways()]
    for source, target, topic, mirrored in pairs:
        source.create(topic)
        source.send(topic, [b"before"])
        wait_until("the record before", lambda: target.partitions(mirrored) and [one[1] for one in target.read(mirrored)], [b"before"], SECONDS)
    mirror.process.kill()
    mirror.process.wait()
    for source, _, topic, _ in pairs:
        source.send(topic, [b"away"])
    mirror.mirror()
    for _, target, _, mirrored in pairs:
        wait_until("all records", lambda: {one[1] for one in target.read(mirrored)}, {b"before", b"away"}, SECONDS)
        expect("the last", target.read(mirrored)[-1][1], b"away")


CASES = {
    "kafka-to-milena": records_case(0),
    "milena-to-kafka": records_case(1),
    "offsets-kafka-to-milena": offsets_case(0),
    "offsets-milena-to-kafka": offsets_case(1),
    "grow": grow,
    "restart": restart,
}

version = next((TARGET / "jars").glob("connect-mirror-4*.jar")).stem.removeprefix("connect-mirror-")
harness.main(Mirror, version, CASES)
