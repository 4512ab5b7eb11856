"""A client's own suite: what its folder says of how it is run, and what came out, beside the list of what must pass."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import tomllib

import card
import clients
import outcomes
import server

FOLDER = clients.COMPAT / "suites"
TARGET = clients.TARGET / "suites"
CARD = FOLDER / "card.json"
BEGIN = "<!-- compat/suites/run writes from here -->"
# In no package: its folder says what a run by hand came to.
BY_HAND = "by hand"
# Those that have the address of the broker in them run one after the other.
FIXED_ADDRESS = threading.Lock()
# For what a run does before its Milena starts.
PREPARE_SECONDS = 120


def known_suites():
    """What each folder says of its suite, by name."""
    return {path.parent.name: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*/suite.toml"))}


def choose(names, full, only=None):
    """The suites to run: those named, else all of the tier. `only` are names of tests, or None."""
    known = {name: about for name, about in known_suites().items() if about["tier"] != BY_HAND}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"no such suite: {', '.join(unknown)}; there are {', '.join(known)}")
    return [Suite(name, about, full, only) for name, about in known.items() if name in names or not names and (full or about["tier"] == "quick")]


class Suite:
    """One folder. `quick`, where there is one, names what of `allow` the quick tier runs."""

    def __init__(self, name, about, full, only=None):
        self.name, self.about = name, about
        self.folder, self.target = FOLDER / name, TARGET / name
        self.must = clients.lines(self.folder / "allow")
        quick = clients.lines(self.folder / "quick")
        strangers = sorted(set(quick) - set(self.must))
        if strangers:
            raise SystemExit(f"{name}/quick has what is not in allow: {', '.join(strangers)}")
        self.part = bool(quick) and not full
        if self.part:
            self.must = quick
        self.only = only
        if only:
            self.must = [name for name in self.must if name in only]
        self.pairs, self.faults = [], []
        self.seconds = 0.0

    def install(self):
        """Seconds it took, and what went wrong or None."""
        start = time.monotonic()
        self.target.mkdir(parents=True, exist_ok=True)
        log = self.target / "install.log"
        with log.open("w") as output:
            code = clients.execute([self.folder / "install.sh"], output, output, clients.INSTALL_SECONDS, {})
        if code != 0:
            self.faults.append(f"not installed: {clients.tail(log)}")
        return time.monotonic() - start, self.faults[0] if self.faults else None

    def run(self, bootstrap):
        """All runs, one after the other, each against a Milena of its own, or all against the broker that is named."""
        if self.faults:
            return
        start = time.monotonic()
        shutil.rmtree(self.target / "logs", ignore_errors=True)
        (self.target / "logs").mkdir()
        for number, run in enumerate(self.about["run"], 1):
            items = [item for item in self.items(run) if not self.only or item is None or called(run, item, "") in self.only]
            if items and not clients.GROUPS.stopped:
                self.against(run, items, bootstrap, number)
        self.seconds = time.monotonic() - start
        print(f"{self.name}: {self.seconds:.0f} s", flush=True)

    def items(self, run):
        """One process for each; a run without `each` is one process."""
        if "each" not in run:
            return [None]
        if run["each"] != "allow":
            whole = "{test}" in run.get("name", "{each}")
            return [item for item in run["each"] if whole or not self.part or called(run, item, "") in self.must]
        others = {name for other in self.about["run"] if not other.get("again") for name in named_by(other)}
        return [name for name in self.must if name not in others]

    def against(self, run, items, bootstrap, number):
        if bootstrap:
            if "[[listeners]]" in run.get("config", ""):
                print(f"{self.name}: run {number} is left out: it wants listeners of its own", flush=True)
                if not run.get("again"):
                    left_out = named_by(run)
                    self.must = [name for name in self.must if name not in left_out]
            else:
                self.all_items(run, items, {"{bootstrap}": bootstrap})
            return
        folder = pathlib.Path(tempfile.mkdtemp(prefix="milena-suite-"))
        fixed = self.about.get("listen")
        config = run.get("config", "")
        broker = server.Milena(folder, fixed, list(run.get("milena", [])), own_listeners="[[listeners]]" in config)
        words = {"{bootstrap}": broker.bootstrap, "{second}": f"127.0.0.1:{server.free_port()}", "{folder}": str(folder)}
        beside = None
        if fixed:
            FIXED_ADDRESS.acquire()
        try:
            for command in run.get("before", []):
                self.prepare(command, words, number)
            if "beside" in run:
                words["{beside}"] = f"127.0.0.1:{server.free_port()}"
                beside = self.start_beside(run, words, number)
            if config:
                (folder / "milena.toml").write_text(self.filled(config, words))
                broker.arguments += ["--config", str(folder / "milena.toml")]
            broker.start()
            self.all_items(run, items, words)
        except SystemExit as error:
            self.faults.append(f"run {number}: {error}")
        finally:
            if beside is not None:
                clients.GROUPS.end(beside)
            broker.stop()
            if fixed:
                FIXED_ADDRESS.release()
            if broker.log.exists():
                shutil.copy(broker.log, self.target / "logs" / f"milena-{number}.log")
            shutil.rmtree(folder, ignore_errors=True)
            self.faults += [f"server: {fault}" for fault in broker.faults]

    def start_beside(self, run, words, number):
        """What runs beside Milena as long as this run lasts, and listens at `{beside}`."""
        log = (self.target / "logs" / f"beside-{number}.log").open("w")
        command = [self.filled(part, words) for part in run["beside"]]
        environment = {key: self.filled(value, words) for key, value in run.get("environment", {}).items()}
        process = clients.GROUPS.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | environment)
        if process is None:
            raise SystemExit("the whole run was stopped")
        server.wait_for(words["{beside}"], process)
        return process

    def prepare(self, command, words, number):
        """One command that must end well before Milena starts."""
        log = self.target / "logs" / f"before-{number}.log"
        with log.open("a") as output:
            code = clients.execute([self.filled(part, words) for part in command], output, output, PREPARE_SECONDS, {"MILENA": str(server.BINARY)}, self.target)
        if code != 0:
            raise SystemExit(f"{command[0]} ended with {code}: {clients.tail(log)}")

    def filled(self, text, words):
        places = {"{installed}": str(self.target), "{suite}": str(self.folder), "{compat}": str(clients.COMPAT)}
        for word, value in (places | words).items():
            text = text.replace(word, value)
        return text

    def all_items(self, run, items, words):
        with concurrent.futures.ThreadPoolExecutor(run.get("jobs", 1)) as pool:
            for pairs in pool.map(lambda item: self.one(run, item, words), items):
                self.pairs += pairs

    def one(self, run, item, words):
        """Runs one process, and names what its tests came to."""
        words = words | {"{each}": item or ""}

        def filled(text):
            return self.filled(text, words)

        stem = f"{self.about['run'].index(run) + 1}-{item or 'all'}"
        out, log = (self.target / "logs" / f"{stem}.{kind}" for kind in ("out", "log"))
        environment = {key: filled(value) for key, value in run.get("environment", {}).items()}
        start = time.monotonic()
        with out.open("w") as output, log.open("w") as errors:
            command = [filled(part) for part in run["command"]]
            code = clients.execute(command, output, errors, run["seconds"], environment, filled(run.get("folder", "{installed}")))
        with log.open("a") as errors:
            errors.write(f"ended with {code} after {time.monotonic() - start:.1f} s\n")
        read = outcomes.READERS[run["reads"]]
        found = read(out.read_text(errors="replace"), log.read_text(errors="replace"), item, code)
        if not isinstance(code, int):
            self.faults.append(f"{stem}: {code}")
        return [(called(run, item, test), outcome) for test, outcome in found.items()]

    def result(self):
        """Counts, and what of the list did not pass."""
        found = outcomes.merged(self.pairs)
        named = {word: [name for name, outcome in found.items() if outcome == word] for word in (outcomes.PASSED, outcomes.FAILED, outcomes.SKIPPED)}
        return {
            "named": named,
            "missing": {name: found.get(name, "did not run") for name in self.must if found.get(name) != outcomes.PASSED},
            "unlisted": sorted(set(named[outcomes.PASSED]) - set(clients.lines(self.folder / "allow"))),
        }

    def counts(self):
        """What the card keeps: how many of the tests that ran did pass. Parts of one test, `0081 part`, are counted by themselves."""
        found = outcomes.merged(self.pairs)
        counts = {}
        for name, outcome in found.items():
            whole, part, _ = name.partition(" ")
            count = counts.setdefault(f"parts of {whole}" if part else "tests", {"passed": 0, "failed": 0, "skipped": 0})
            count[outcome] += 1
        return counts


def update(ran, about):
    """Puts what came out into the card and into the table of docs/compatibility.md."""
    kept = json.loads(CARD.read_text()) if CARD.exists() else {}
    for suite in ran:
        kept[suite.name] = {"version": suite.about["version"], "counts": suite.counts()} | about
    card.write_json(CARD, kept)
    rows = ["| Suite | Version | Passed | Skip themselves | On | What fails or is left out |", "| --- | --- | --- | --- | --- | --- |"]
    for name, suite in known_suites().items():
        run = suite if suite["tier"] == BY_HAND else kept.get(name, {"counts": {}, "date": "-"})
        passed = ", ".join(told(kind, count) for kind, count in sorted(run["counts"].items(), key=lambda one: one[0] != "tests"))
        skipped = sum(count["skipped"] for count in run["counts"].values())
        how = ", by hand" if suite["tier"] == BY_HAND else ""
        rows.append(f"| [{name}](../compat/suites/{name}/findings.md) | {suite['version']} | {passed or '-'} | {skipped} | {run['date']}{how} | {card.cell(suite['left_out'])} |")
    card.write_between(BEGIN, "\n".join(rows) + "\n")


def told(kind, count):
    text = f"{count['passed']} of {count['passed'] + count['failed']}"
    return text if kind == "tests" else f"{text} {kind}"


def named_by(run):
    """What a run that lists its items calls them."""
    listed = run.get("each", [])
    return [] if listed == "allow" else [called(run, item, "") for item in listed]


def called(run, item, test):
    """The name under which a test is in `allow`."""
    return run.get("name", "{test}" if item is None else "{each}").replace("{each}", item or "").replace("{test}", test)
