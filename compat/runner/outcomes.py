"""What the tests of a suite came to, read from what their runner printed: `passed`, `failed` or `skipped` for each."""

import re

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def go(out, _log, _item, _code):
    """Tests of a test program of Go, without their parts, run with -test.v=test2json: the mark before each line sets it off from what tests print."""
    words = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
    return {name: words[word] for word, name in re.findall(r"\x16--- (PASS|FAIL|SKIP): (Test[^\s/]*)(?=\s)", out)}


def pytest(out, _log, _item, _code):
    """pytest -rA --no-fold-skipped, by the name of the file and of the test."""
    words = {"PASSED": PASSED, "XPASS": PASSED, "FAILED": FAILED, "ERROR": FAILED, "XFAIL": FAILED, "SKIPPED": SKIPPED}
    lines = re.findall(r"^(PASSED|XPASS|FAILED|ERROR|XFAIL|SKIPPED) (\S+)", out, re.MULTILINE)
    return merged((name.rpartition("/")[2], words[word]) for word, name in lines)


def cargo(out, _log, _item, _code):
    """A test program of Rust."""
    words = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
    lines = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", out, re.MULTILINE)
    return {name: words[word] for name, word in lines}


def librdkafka(out, _log, _item, code):
    """One number of librdkafka's test-runner, which can stand for several tests; those that are left out say nothing."""
    states = re.findall(r"^\|\S*\s+\d{4}_\w+\s+\|\s+(PASSED|FAILED|RUNNING|SKIPPED)", out, re.MULTILINE)
    if code != 0 or "FAILED" in states or "RUNNING" in states:
        return {"": FAILED}
    return {"": PASSED if "PASSED" in states else SKIPPED}


def librdkafka_part(out, log, item, code):
    """One part of a test of librdkafka's, named by the function: the number passes too when it has no such part."""
    whole = librdkafka(out, log, item, code)[""]
    passes = re.search(rf"\[ {re.escape(item)}:.*: PASS \(", out + log)
    return {"": whole if whole != PASSED or passes else FAILED}


READERS = {reader.__name__: reader for reader in (go, pytest, cargo, librdkafka, librdkafka_part)}


def merged(pairs):
    """One outcome for each name: a test that ran twice passed when it did each time that it was not skipped."""
    found = {}
    for name, outcome in pairs:
        before = found.get(name, SKIPPED)
        found[name] = FAILED if FAILED in (before, outcome) else PASSED if PASSED in (before, outcome) else SKIPPED
    return found
