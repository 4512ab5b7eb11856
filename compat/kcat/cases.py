"""kcat of the distribution: a librdkafka of some years ago. Each thing that it does is a process of its own."""

import os
import re
import signal
import subprocess
import sys
import threading

import harness
import scenarios
from harness import Record, expect

# Lengths come first, so that keys and values may hold any byte.
FORMAT = "%o %T %K %S %h\n%k%s\n"
# kcat creates no topics; Milena's own command line tool is a Kafka client.
MILENA = os.environ.get("COMPAT_MILENA", "milena")


def records_of(output):
    records = []
    while output:
        line, _, rest = output.partition(b"\n")
        offset, time, key, value, headers = line.split(b" ", 4)
        lengths = [int(key), int(value)]
        sizes = [max(length, 0) for length in lengths]
        texts = [rest[: sizes[0]], rest[sizes[0] : sum(sizes)]]
        key, value = (None if length < 0 else text for length, text in zip(lengths, texts))
        pairs = [pair.split(b"=", 1) for pair in headers.split(b",") if pair]
        headers = [(name.decode(), None if text == b"NULL" else text) for name, text in pairs]
        records.append(Record(key, value, headers, int(time), int(offset)))
        output = rest[sum(sizes) + 1 :]
    return records


class Member:
    """A process that reads for its group. It commits by itself, which is why the cases about commits are written for it below."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assigned, self.joined = [], 0
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stderr:
            if "assigned:" in line:
                self.assigned, self.joined = sorted(int(number) for number in re.findall(r"\[(\d+)\]", line)), self.joined + 1

    def poll(self, count=100):
        return []

    def assignment(self):
        return self.assigned

    def rebalances(self):
        return self.joined

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    # A static member does not leave when it closes.
    abandon = close


class Driver:
    client = "kcat"
    null_headers = True

    def __init__(self, bootstrap, secure=None):
        self.kcat = ["kcat", "-b", bootstrap, "-X", f"client.id={self.client}"]
        # Topics are created where that wants no password.
        self.milena = [MILENA, "topics", "create", "-b", bootstrap if secure is None else sys.argv[1]]
        settings = {}
        if secure:
            settings |= {"security.protocol": secure.protocol, "ssl.ca.location": secure.authority}
        if secure and secure.mechanism:
            settings |= {"sasl.mechanism": secure.mechanism, "sasl.username": secure.user, "sasl.password": secure.password}
        self.kcat += [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]

    def refused(self, secure):
        done = subprocess.run([*Driver(secure.bootstrap, secure).kcat, "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode != 0 and "SASL authentication error" in done.stderr

    def run(self, *arguments, text=b""):
        done = subprocess.run([*self.kcat, *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if done.returncode != 0 or b"ERROR" in done.stderr or b"not compressing" in done.stderr:
            raise AssertionError(f"kcat {arguments} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
        return done.stdout

    def create(self, topic, partitions, config):
        subprocess.run([*self.milena, topic, "--partitions", str(partitions)], check=True, capture_output=True, timeout=60)

    def produce(self, topic, records, codec="none", idempotent=False):
        settings = ["-P", "-t", topic, "-p", "0", "-z", codec, "-X", "linger.ms=20", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        if all(record.key is not None and record.value and not record.headers for record in records):
            self.run(*settings, "-K", "\t", text=b"".join(record.key + b"\t" + record.value + b"\n" for record in records))
            return
        for record in records:
            self.produce_one(settings, record)

    def produce_one(self, settings, record):
        headers = [part for name, value in record.headers for part in ("-H", name if value is None else f"{name}={value.decode()}")]
        # With -Z what is empty is null, without it what is empty is empty.
        null = ["-Z"] if record.value is None else []
        key = ["-K", "\t"] if record.key is not None else []
        self.run(*settings, *headers, *null, *key, text=(record.key + b"\t" if key else b"") + (record.value or b"") + b"\n")

    def read(self, topic, count, offset=0):
        return records_of(self.run("-C", "-t", topic, "-p", "0", "-o", str(offset), "-c", str(count), "-e", "-q", "-f", FORMAT))

    def query(self, topic, at):
        return int(self.run("-Q", "-t", f"{topic}:0:{at}").rsplit(b" ", 1)[1])

    def bounds(self, topic):
        return self.query(topic, -2), self.query(topic, -1)

    def in_group(self, group, *settings):
        return [*self.kcat, "-G", group, "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=500", *settings]

    def member(self, group, topic, instance=None):
        static = ["-X", f"group.instance.id={instance}"] if instance else []
        return Member([*self.in_group(group, *static), topic])

    def partitions(self, topic):
        shown = self.run("-L", "-t", topic).decode()
        return {int(number): int(leader) for number, leader in re.findall(r"partition (\d+), leader (-?\d+)", shown)}


def read_ten(driver, case, numbers):
    """It commits what it has read when it ends."""
    topic = scenarios.name(driver, case)
    arguments = driver.in_group(topic, "-c", "10", "-f", FORMAT)[len(driver.kcat) :]
    records = records_of(driver.run(*arguments, topic))
    expect("records", [record.value for record in records], numbers)


def first_ten(case):
    def run(driver):
        topic = scenarios.topic_of(driver, case)
        driver.produce(topic, [Record(b"k", value) for value in scenarios.NUMBERS])
        read_ten(driver, case, scenarios.NUMBERS[:10])

    return run


def rest(case):
    return lambda driver: read_ten(driver, case, scenarios.NUMBERS[10:])


def both(case):
    def run(driver):
        first_ten(case)(driver)
        rest(case)(driver)

    return run


def describe(driver):
    topic = scenarios.topic_of(driver, "admin-describe", 3)
    expect("whether all have a leader", [leader >= 0 for leader in driver.partitions(topic).values()], [True] * 3)


def tls(driver):
    encrypted = scenarios.connected(driver, harness.Secure())
    scenarios.round_trip("tls")(encrypted)
    both("tls-group")(encrypted)


def sasl(case, writes, reads):
    def run(driver):
        scenarios.round_trip(case)(scenarios.connected(driver, harness.Secure(writes)))
        first_ten(f"{case}-group")(scenarios.connected(driver, harness.Secure(writes)))
        rest(f"{case}-group")(scenarios.connected(driver, harness.Secure(reads)))
        for mechanism in {writes, reads}:
            expect(f"the word on a wrong password by {mechanism}", driver.refused(harness.Secure(mechanism, right=False)), True)

    return run


SECURE = {"tls": tls, "sasl-plain": sasl("sasl-plain", "PLAIN", "PLAIN"), "sasl-scram": sasl("sasl-scram", "SCRAM-SHA-512", "SCRAM-SHA-256")}
OWN = {"group-continue": both("group-continue"), "restart-before": first_ten("restart"), "restart-after": rest("restart"), "admin-describe": describe}
version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
harness.main(Driver, " ".join(re.search(r"Version (\S+) .*(librdkafka \S+)", version).groups()), scenarios.CASES | OWN | SECURE)
