"""A client's folder: what it is asked for, how it is run, and how its answers are counted."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import server

COMPAT = pathlib.Path(__file__).resolve().parent.parent
TARGET = COMPAT.parent / "target" / "compat"

# Also covers builds in C on a loaded machine.
INSTALL_SECONDS = 1800
# All cases take under a minute; a client that hangs must not hold the others for long.
RUN_SECONDS = 420
# The case that is asked for after the server was killed and started again.
AFTER_RESTART = "restart-after"
# Those that want listeners which are secured.
SECURED = ("tls", "sasl-plain", "sasl-scram")
# What a program says that did not find out its own version.
UNKNOWN = (None, "", "-", "?")


def lines(path):
    """Lines of a file that are neither empty nor comments; none when there is no such file."""
    if not path.exists():
        return []
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def choose(names, full, only):
    """The clients to run. `only` are names of cases, or None."""
    entries = [line.split() for line in lines(COMPAT / "clients")]
    tiers = {name: tier for name, tier, *_ in entries}
    limits = {name: int(limit[0]) for name, _, *limit in entries if limit}
    unknown = sorted(set(names) - set(tiers))
    if unknown:
        raise SystemExit(f"no such client: {', '.join(unknown)}; there are {', '.join(tiers)}")
    names = names or [name for name, tier in tiers.items() if full or tier == "quick"]
    return [Client(name, only, limits.get(name, RUN_SECONDS)) for name in names]


class Client:
    """One folder. A folder with a `cases` file of its own is asked for those instead of the shared ones."""

    def __init__(self, name, only, run_seconds):
        self.name = name
        self.run_seconds = run_seconds
        self.folder = COMPAT / name
        own = self.folder / "cases"
        self.cases = lines(own if own.exists() else COMPAT / "cases")
        if only:
            self.cases = [case for case in self.cases if case in only]
        self.excluded = {}
        for line in lines(self.folder / "excluded"):
            case, _, reason = line.partition(":")
            if not reason.strip():
                raise SystemExit(f"{name}/excluded: no reason in [{line}]")
            if case == "*":
                self.cases, self.excluded = [], {"all cases": reason.strip()}
                break
            if not only and case not in self.cases:
                raise SystemExit(f"{name}/excluded: no such case: {case}")
            if case in self.cases:
                self.excluded[case] = reason.strip()
        self.run_id = ""
        self.environment = {}
        self.version = None
        self.answers = {}
        self.faults = {}
        self.broken = None
        self.seconds = 0.0

    def asked(self, restarted):
        return [case for case in self.cases if case not in self.excluded and (case == AFTER_RESTART) == restarted]

    def leave_out(self, cases):
        self.cases = [case for case in self.cases if case not in cases]

    def install(self):
        """Seconds it took, and what went wrong or None."""
        start = time.monotonic()
        if not self.cases:
            return 0, None
        (TARGET / self.name).mkdir(parents=True, exist_ok=True)
        log = TARGET / self.name / "install.log"
        with log.open("w") as output:
            code = execute([self.folder / "run.sh", "--install"], output, output, INSTALL_SECONDS, {})
        if code != 0:
            self.broken = f"not installed: {tail(log)}"
        return time.monotonic() - start, self.broken

    def run(self, bootstrap, restarted):
        """Asks for the cases of this phase and counts what was answered."""
        asked = self.asked(restarted)
        if not asked or self.broken:
            return
        phase = "restarted" if restarted else "first"
        out, log = TARGET / self.name / f"{phase}.jsonl", TARGET / self.name / f"{phase}.log"
        start = time.monotonic()
        with out.open("w") as output, log.open("w") as errors:
            command = [self.folder / "run.sh", bootstrap, *asked]
            code = execute(command, output, errors, self.run_seconds, self.environment | {"COMPAT_RUN": self.run_id, "COMPAT_MILENA": str(server.BINARY)})
        self.seconds += time.monotonic() - start
        self.version = None
        for line in out.read_text(errors="replace").splitlines():
            self.answer(line, asked)
        if self.version in UNKNOWN:
            self.faults.setdefault(asked[0], "it did not say which version it is")
        for case in asked:
            if case not in self.answers:
                self.faults[case] = "no answer" + ("" if code == 0 else f"; ended with {code}: {tail(log)}")
        if code != 0 and all(case in self.answers for case in asked):
            self.faults[asked[-1]] = f"ended with {code} after its last answer: {tail(log)}"
        print(f"{self.name}: {len(asked)} cases, {self.seconds:.0f} s", flush=True)

    def answer(self, line, asked):
        try:
            said = json.loads(line)
        except ValueError:
            self.faults[asked[0]] = f"printed what is not JSON: {line[:200]}"
            return
        if "client" in said:
            self.version = said.get("version")
            if said["client"] != self.name:
                self.faults.setdefault(asked[0], f"says that it is {said['client']}")
            return
        case = str(said.get("case"))
        if case not in asked:
            self.faults[asked[0]] = f"answered a case that nobody asked for: {case}"
        elif case in self.answers:
            self.faults[case] = "answered twice"
        else:
            self.answers[case] = said
            if said.get("ok") is not True:
                self.faults[case] = str(said.get("detail") or "failed without a word")

    def failed(self):
        if self.broken:
            return {case: self.broken for case in self.cases if case not in self.excluded}
        return {case: self.faults[case] for case in self.cases if case in self.faults}

    def result(self):
        asked = [case for case in self.cases if case not in self.excluded]
        failed = self.failed()
        return {
            "version": self.version or "-",
            "cases": len(asked),
            "passed": len(asked) - len(failed),
            "failed": failed,
            "excluded": self.excluded,
            "seconds": round(self.seconds),
        }


class Groups:
    """The process groups that run, to end them all when the run itself is stopped: they have sessions of their own, and hear nothing of it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = False

    def start(self, command, **how):
        """A process that leads a group of its own, or None when everything has been stopped."""
        with self.lock:
            if self.stopped:
                return None
            process = subprocess.Popen(command, start_new_session=True, **how)
            self.running.add(process)
            return process

    def end(self, process):
        # What it started and left behind, too.
        with self.lock:
            self.running.discard(process)
            kill(process)
        process.wait()

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.running:
                kill(process)


GROUPS = Groups()


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def execute(command, output, errors, seconds, environment, folder=None):
    """Runs in a process group of its own, which is ended as a whole when the time is over. The exit code, or what happened instead."""
    command = [str(part) for part in command]
    process = GROUPS.start(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=os.environ | environment, cwd=folder)
    if process is None:
        return "a stop of the whole run"
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"a time-out of {seconds} s"
    finally:
        GROUPS.end(process)


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals():
    """A stop from outside goes through `finally`, so that no server stays behind; what waits there for clients has none to wait for."""
    for one in STOPS:
        signal.signal(one, stop)


def stop(*_):
    for one in STOPS:
        signal.signal(one, signal.SIG_IGN)
    GROUPS.stop()
    sys.exit(1)


def tail(path):
    """The last words of a log."""
    text = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(text[-3:])[-500:]
