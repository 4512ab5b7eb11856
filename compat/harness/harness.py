"""Runs the cases of a client of Python and prints one JSON line for each."""

import json
import os
import sys
import threading
import time
import traceback

# Longer than any session or time-out that a case sets, on a loaded machine.
CASE_SECONDS = 90
RECORDS = [(f"key {number % 7}".encode(), f"record {number:06} of a text that compresses well".encode()) for number in range(500)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# A fixed moment, in milliseconds.
MOMENT = 1_700_000_000_000


def name(client, case):
    """The topic and group of a case."""
    return f"{os.environ.get('COMPAT_RUN', 'c')}-{client}-{case}"


def expect(what, seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{what}: {short(seen)} instead of {short(wanted)}")


def short(value):
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."


def wait_until(what, condition, seconds=40):
    """Asks until it is true; for states that others bring about, such as the end of a rebalance."""
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not so after {seconds} s")
        time.sleep(0.05)


def main(client, version, cases):
    """`cases` maps names to functions of a bootstrap address. Those that a function of another thread never ends are failures."""
    # What the client prints itself must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bootstrap, *asked = sys.argv[1:]
    print(json.dumps({"client": client, "version": version}), file=answers, flush=True)
    for case in asked:
        answer = {"case": case}
        answer.update(run(cases.get(case), bootstrap))
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def run(function, bootstrap):
    if function is None:
        return {"ok": False, "detail": "this client's program has no such case"}
    outcome = {"ok": False, "detail": f"not done after {CASE_SECONDS} s"}

    def body():
        try:
            function(bootstrap)
            outcome.update(ok=True, detail="")
        except BaseException as error:  # a client may raise anything
            traceback.print_exc()
            outcome.update(ok=False, detail=f"{type(error).__name__}: {error}"[:500])

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(CASE_SECONDS)
    return dict(outcome)
