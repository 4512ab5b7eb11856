"""Runs the cases of a client of Python and prints one JSON line for each. A client is a driver: an object with the methods that `scenarios.py` calls."""

import json
import logging
import os
import sys
import threading
import time
import traceback

# Longer than any session or time-out that a case sets, on a loaded machine.
CASE_SECONDS = 90


class Record:
    """What is sent and read. `timestamp` is in milliseconds; without one the client sets it."""

    def __init__(self, key=None, value=None, headers=(), timestamp=None, offset=None):
        self.key, self.value, self.headers, self.timestamp, self.offset = key, value, list(headers), timestamp, offset


class Secure:
    """A listener with TLS, and how one logs in there where it wants that. `mechanism` is one of SASL, or None."""

    def __init__(self, mechanism=None, right=True):
        self.bootstrap = os.environ["COMPAT_SASL" if mechanism else "COMPAT_TLS"]
        self.authority = os.environ["COMPAT_CA"]
        self.mechanism, self.user = mechanism, os.environ["COMPAT_USER"]
        self.password = os.environ["COMPAT_PASSWORD"] if right else "not the password"
        self.protocol = "SASL_SSL" if mechanism else "SSL"


def logged(logger, work):
    """What a client's logger says while it works."""
    told, handler = [], logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger(logger).addHandler(handler)
    try:
        work()
    finally:
        logging.getLogger(logger).removeHandler(handler)
    return told


def expect(what, seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{what}: {short(seen)} instead of {short(wanted)}")


def short(value):
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."


def wait_until(what, seen, wanted, seconds=60):
    """Asks until it is so; for states that others bring about, such as the end of a rebalance."""
    end = time.monotonic() + seconds
    while (now := seen()) != wanted:
        if time.monotonic() > end:
            expect(f"{what}, after {seconds} s", now, wanted)
        time.sleep(0.05)


def collect(count, more, seconds=60):
    """`count` records, of which `more` brings the next ones."""
    records, end = [], time.monotonic() + seconds
    while len(records) < count and time.monotonic() < end:
        records.extend(more())
    expect("the number of records", len(records), count)
    return records


def main(driver, version, cases):
    """`cases` maps names to functions of the driver. What is not over in time has failed, and the next one begins."""
    # What the client prints itself must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bootstrap, *asked = sys.argv[1:]
    print(json.dumps({"client": driver.client, "version": version}), file=answers, flush=True)
    connected = driver(bootstrap)
    for case in asked:
        print(json.dumps({"case": case} | run(cases.get(case), connected)), file=answers, flush=True)
    # Processes that a driver started.
    getattr(connected, "stop", lambda: None)()
    # Threads of clients and of cases that hang are not waited for.
    os._exit(0)


def run(function, driver):
    if function is None:
        return {"ok": False, "detail": "there is no such case"}
    outcome = {"ok": False, "detail": f"not done after {CASE_SECONDS} s"}

    def body():
        try:
            function(driver)
            outcome.update(ok=True, detail="")
        except BaseException as error:  # a client may raise anything
            traceback.print_exc()
            outcome.update(ok=False, detail=f"{type(error).__name__}: {error}"[:500])

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(CASE_SECONDS)
    return dict(outcome)
