"""Kafka Connect, distributed: lines of a file go to a topic, and from there to another file."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import harness
from harness import expect, wait_until

TARGET = pathlib.Path(__file__).resolve().parents[2] / "target/compat/connect"
RUN = os.environ.get("COMPAT_RUN", "c")
# A virtual machine and a rebalance or two, on a loaded machine.
SECONDS = 120
harness.CASE_SECONDS = 200
WORKERS = []


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def name(case):
    return f"{RUN}-connect-{case}"


class Worker:
    """One process of the group, which keeps what it knows in three topics."""

    def __init__(self, bootstrap, group, **settings):
        self.port = free_port()
        self.log = TARGET / f"worker-{self.port}.log"
        all_settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": f"{group}-configs",
            "offset.storage.topic": f"{group}-offsets",
            "status.storage.topic": f"{group}-status",
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "offset.storage.partitions": 3,
            "status.storage.partitions": 2,
            "offset.flush.interval.ms": 300,
            "session.timeout.ms": 10000,
            "heartbeat.interval.ms": 500,
            # Connectors of a worker that is gone go to the others after this; the default is 5 minutes.
            "scheduled.rebalance.max.delay.ms": 1000,
            "plugin.discovery": "service_load",
            "listeners": f"http://127.0.0.1:{self.port}",
        } | {key.replace("_", "."): value for key, value in settings.items()}
        file = TARGET / f"worker-{self.port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in all_settings.items()))
        jars, log4j = TARGET / "jars", pathlib.Path(__file__).parent / "log4j2.properties"
        machine = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={log4j}"]
        command = ["java", *machine, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        WORKERS.append(self)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None):
        """The decoded answer; None when the worker cannot answer, or not now."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            if error.code in (404, 409, 500, 503):
                print(f"{method} {path}: {error.code} {said}", file=sys.stderr)
                return None
            raise AssertionError(f"{method} {path}: {error.code} {said}") from error
        except OSError:
            return None

    def wait(self):
        """Until it is a member of the group and knows what the group knows."""
        wait_until("the worker answers", lambda: self.process.poll() is not None or self.ask("GET", "/connectors") is not None, True, SECONDS)
        expect("the worker's end", self.process.poll(), None)
        return self

    def state(self, connector):
        """Of the connector and its task: state and worker."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return status and [(part["state"], part["worker_id"]) for part in (status["connector"], *status["tasks"])]

    def states(self, connector):
        return [state for state, _ in self.state(connector) or []]

    def offsets(self, connector):
        """Where the one task is: the place in the file, or the offset in the topic."""
        answer = self.ask("GET", f"/connectors/{connector}/offsets")
        parts = (answer or {}).get("offsets", [])
        return [part["offset"].get("position", part["offset"].get("kafka_offset")) for part in parts]


class Pipe:
    """A source and a sink over one topic."""

    def __init__(self, case):
        self.topic = name(case)
        self.source, self.sink = f"{self.topic}-source", f"{self.topic}-sink"
        folder = TARGET / "files" / RUN
        folder.mkdir(parents=True, exist_ok=True)
        self.into, self.out = folder / f"{case}-in", folder / f"{case}-out"

    def start(self, worker):
        self.into.touch()
        for connector, kind, settings in (
            (self.source, "Source", {"topic": self.topic, "file": str(self.into)}),
            (self.sink, "Sink", {"topics": self.topic, "file": str(self.out)}),
        ):
            config = {"connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector", "tasks.max": "1"} | settings
            wait_until(f"{connector} is taken", lambda: worker.ask("PUT", f"/connectors/{connector}/config", config) is not None, True, SECONDS)
            wait_until(f"{connector} runs", lambda: worker.states(connector), ["RUNNING", "RUNNING"], SECONDS)

    def write(self, *lines):
        with self.into.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def read(self):
        return self.out.read_text().splitlines() if self.out.exists() else []

    def settled(self, worker):
        """What was read and written is what will be known after any end."""
        wait_until("the source's offset is stored", lambda: worker.offsets(self.source), [self.into.stat().st_size], SECONDS)
        wait_until("the sink's offset is committed", lambda: worker.offsets(self.sink), [len(self.into.read_text().splitlines())], SECONDS)


class Group:
    client = "connect"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.workers = []

    def stop(self):
        for worker in WORKERS:
            worker.kill()

    def worker(self):
        """The one that all cases use."""
        if not self.workers:
            self.workers.append(Worker(self.bootstrap, name("group")))
        return self.workers[0].wait()


def source_and_sink(group):
    worker, pipe = group.worker(), Pipe("lines")
    pipe.start(worker)
    lines = [f"line {number}" for number in range(200)]
    pipe.write(*lines)
    wait_until("the lines", pipe.read, lines, SECONDS)
    pipe.settled(worker)


def worker_restart(group):
    worker, pipe = group.worker(), Pipe("restart-worker")
    pipe.start(worker)
    pipe.write("a", "b")
    wait_until("the lines", pipe.read, ["a", "b"], SECONDS)
    pipe.settled(worker)
    worker.kill()
    group.workers.clear()
    pipe.write("c")
    worker = group.worker()
    wait_until("both run again", lambda: worker.states(pipe.source) + worker.states(pipe.sink), ["RUNNING"] * 4, SECONDS)
    pipe.write("d")
    wait_until("each line once", pipe.read, ["a", "b", "c", "d"], SECONDS)


def two_workers(group):
    worker, pipe = group.worker(), Pipe("two")
    pipe.start(worker)
    second = Worker(group.bootstrap, name("group")).wait()
    pipes = [Pipe(f"two-{number}") for number in range(2)]
    for one in pipes:
        one.start(second)
    connectors = [connector for one in (pipe, *pipes) for connector in (one.source, one.sink)]

    def places():
        return {place for connector in connectors for _, place in worker.state(connector) or []}

    wait_until("both workers have some", lambda: len(places()), 2, SECONDS)
    second.kill()
    wait_until("the first one has all", lambda: (len(places()), {s for c in connectors for s in worker.states(c)}), (1, {"RUNNING"}), SECONDS)
    for one in (pipe, *pipes):
        one.write("after")
        wait_until("a line", one.read, ["after"], SECONDS)


def stopped(worker, connector):
    wait_until(f"{connector} is stopped", lambda: worker.ask("PUT", f"/connectors/{connector}/stop") is not None, True, SECONDS)
    wait_until("its state", lambda: worker.states(connector), ["STOPPED"], SECONDS)


def offsets(group):
    worker, pipe = group.worker(), Pipe("offsets")
    pipe.start(worker)
    pipe.write("a", "b", "c")
    wait_until("the lines", pipe.read, ["a", "b", "c"], SECONDS)
    pipe.settled(worker)
    # The sink's are those of a consumer group, which Connect changes and deletes as an admin client.
    stopped(worker, pipe.sink)
    wanted = {"offsets": [{"partition": {"kafka_topic": pipe.topic, "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]}
    wait_until("its offset is set", lambda: worker.ask("PATCH", f"/connectors/{pipe.sink}/offsets", wanted) is not None, True, SECONDS)
    expect("its offset", worker.offsets(pipe.sink), [1])
    worker.ask("PUT", f"/connectors/{pipe.sink}/resume")
    wait_until("two lines again", pipe.read, ["a", "b", "c", "b", "c"], SECONDS)
    stopped(worker, pipe.sink)
    wait_until("its offsets are deleted", lambda: worker.ask("DELETE", f"/connectors/{pipe.sink}/offsets") is not None, True, SECONDS)
    expect("its offsets", worker.offsets(pipe.sink), [])
    # The source's are records of a compacted topic.
    stopped(worker, pipe.source)
    wait_until("the source's are deleted", lambda: worker.ask("DELETE", f"/connectors/{pipe.source}/offsets") is not None, True, SECONDS)
    expect("the source's", worker.offsets(pipe.source), [])
    for connector in (pipe.source, pipe.sink):
        wait_until("deleted", lambda: worker.ask("DELETE", f"/connectors/{connector}") is not None, True, SECONDS)
        wait_until("gone", lambda: connector in (worker.ask("GET", "/connectors") or [connector]), False, SECONDS)


def exactly_once_refused(group):
    """A worker that is asked for exactly-once sources says why it cannot, and does not take any."""
    worker = Worker(group.bootstrap, name("exactly-once"), exactly_once_source_support="enabled")
    said = "TransactionalIdAuthorizationException"
    wait_until("the reason is told", lambda: said in worker.log.read_text(), True, SECONDS)
    worker.kill()


def restart_before(group):
    worker, pipe = group.worker(), Pipe("restart")
    pipe.start(worker)
    pipe.write("a", "b")
    wait_until("the lines", pipe.read, ["a", "b"], SECONDS)
    pipe.settled(worker)


def restart_after(group):
    pipe = Pipe("restart")
    pipe.write("c")
    # Connectors, their state and their offsets come from the topics.
    worker = group.worker()
    wait_until("both run again", lambda: worker.states(pipe.source) + worker.states(pipe.sink), ["RUNNING"] * 4, SECONDS)
    wait_until("each line once", pipe.read, ["a", "b", "c"], SECONDS)


CASES = {
    "source-and-sink": source_and_sink,
    "worker-restart": worker_restart,
    "two-workers": two_workers,
    "offsets": offsets,
    "exactly-once-refused": exactly_once_refused,
    "restart-before": restart_before,
    "restart-after": restart_after,
}


def version():
    return next((TARGET / "jars").glob("connect-runtime-*.jar")).stem.removeprefix("connect-runtime-")


harness.main(Group, version(), CASES)
