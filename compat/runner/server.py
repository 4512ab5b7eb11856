"""The broker under test: a new Milena over the store that COMPAT_STORE names, or one that runs already."""

import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
START_SECONDS = 60
STOP_SECONDS = 40
BINARY = pathlib.Path(os.environ.get("TEST_BINARY") or ROOT / "target/release/milena").absolute()


class Running:
    """A broker that somebody else started. It is not restarted, so that `restart-after` shows a new client only. The listeners of it that are secured
    are in the variables of `Secured`."""

    clients = {}

    def __init__(self, bootstrap):
        self.bootstrap, self.store, self.version, self.log, self.faults = bootstrap, "its own", "another broker", None, []

    def start(self):
        pass

    def kill_and_start(self):
        pass

    def stop(self):
        pass


# The user of the listener that asks for one.
USER, PASSWORD = "tester", "only for tests"
SECURED = """
[[listeners]]
name = "plain"
bind = "{plain}"

[[listeners]]
name = "tls"
bind = "127.0.0.1:{tls}"
advertised = "localhost:{tls}"
tls.certificate_file = "{certificates}/server.pem"
tls.key_file = "{certificates}/server.key"

[[listeners]]
name = "users"
bind = "127.0.0.1:{users}"
advertised = "localhost:{users}"
tls.certificate_file = "{certificates}/server.pem"
tls.key_file = "{certificates}/server.key"
sasl.mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

[sasl]
username = "{user}"
password = "{password}"
"""

# A short wait for further members, so that the cases do not spend their time on it.
SHORT_WAIT = ("--set", "groups.initial_rebalance_delay=100ms")


class Milena:
    """Milena with its data in `folder` and its log in `log`, on a free port or where `listen` says, `HOST:PORT[@ADVERTISED]`. With `own_listeners`
    the configuration that `arguments` name has a listener there."""

    def __init__(self, folder, listen=None, arguments=SHORT_WAIT, own_listeners=False):
        if not BINARY.exists():
            raise SystemExit(f"{BINARY} is not there: cargo build --release -p milena")
        self.folder = folder
        self.log = folder / "server.log"
        self.listen = listen or f"127.0.0.1:{free_port()}"
        self.bootstrap = self.listen.partition("@")[0]
        self.arguments = list(arguments)
        self.own_listeners = own_listeners
        self.version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self.kind = os.environ.get("COMPAT_STORE") or "embedded"
        # What is shown has no password in it.
        self.store = {"embedded": "embedded store", "door": "Iggy's protocol"}.get(self.kind, "Iggy server")
        self.door = None
        self.process = None
        # What it did that no client's answer shows.
        self.faults = []

    def start(self):
        where, environment = ["--data-dir", str(self.folder / "data")], {}
        if self.kind == "door":
            if self.door is None:
                address = f"127.0.0.1:{free_port()}"
                self.door = self.spawn(["--listen", f"127.0.0.1:{free_port()}", "--iggy-listen", address, *where], {"MILENA_IGGY_DOOR_PASSWORD": "secret"})
                self.door_address = address
                wait_for(address, self.door)
            where, environment = ["--iggy", f"iggy://iggy@{self.door_address}", "--set", "iggy.state_stream=gateway"], {"MILENA_IGGY_PASSWORD": "secret"}
        elif self.kind.startswith("iggy://"):
            at = urllib.parse.urlsplit(self.kind)
            where, environment = ["--iggy", f"iggy://{at.username}@{at.hostname}:{at.port}"], {"MILENA_IGGY_PASSWORD": at.password or ""}
        elif self.kind != "embedded":
            raise SystemExit("COMPAT_STORE is embedded, door or iggy://user:password@host:port")
        listen = [] if self.own_listeners else ["--listen", self.listen]
        self.process = self.spawn([*listen, *where, *self.arguments], environment)
        wait_for(self.bootstrap, self.process)

    def spawn(self, arguments, environment):
        with self.log.open("a") as log:
            return subprocess.Popen(
                [BINARY, "serve", *arguments, "--set", "metrics.listen=off"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                # The clients are ended first when this run is stopped from the keyboard.
                start_new_session=True,
            )

    def kill_and_start(self):
        """As after a crash: no chance to write anything first."""
        if self.process.poll() is not None:
            self.faults.append(f"the server ended by itself with {self.process.returncode}")
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def stop(self):
        for process in (self.process, self.door):
            if process is not None:
                self.end(process)
        if self.log.exists():
            with self.log.open(errors="replace") as log:
                self.faults += [f"in its log: {line.strip()[:300]}" for line in log if "panicked" in line]

    def end(self, process):
        if process.poll() is not None:
            self.faults.append(f"the server ended by itself with {process.returncode}")
            return
        process.terminate()
        try:
            if process.wait(STOP_SECONDS) != 0:
                self.faults.append(f"the server ended with {process.returncode} when it was asked to")
        except subprocess.TimeoutExpired:
            self.faults.append(f"the server did not end within {STOP_SECONDS} s")
            process.kill()
            process.wait()


class Secured(Milena):
    """Milena with two listeners more: one with TLS, and one with TLS that asks who comes. `clients` is what tells clients of them, as variables."""

    def __init__(self, folder):
        super().__init__(folder, own_listeners=True)
        certificates = ROOT / "target/compat/certificates"
        subprocess.run([ROOT / "compat/certificates", certificates], check=True)
        ports = {"tls": free_port(), "users": free_port()}
        config = folder / "milena.toml"
        config.write_text(SECURED.format(plain=self.listen, certificates=certificates, user=USER, password=PASSWORD, **ports))
        self.arguments += ["--config", str(config)]
        self.clients = {
            "COMPAT_TLS": f"localhost:{ports['tls']}",
            "COMPAT_SASL": f"localhost:{ports['users']}",
            "COMPAT_CA": str(certificates / "ca.pem"),
            "COMPAT_USER": USER,
            "COMPAT_PASSWORD": PASSWORD,
        }


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(address, process):
    host, port = address.split(":")
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"a server ended with {process.returncode} at its start")
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody listens on {address} after {START_SECONDS} s")
