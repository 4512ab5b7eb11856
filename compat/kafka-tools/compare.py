"""Compares what a server's tools printed with the transcripts of Apache Kafka, and answers for each case as compat/run asks.

compare.py PRINTED_FOLDER CASE...; with --record in front, what was printed becomes the transcript, and with --accept the differences become
the accepted ones, those that are new without a reason yet.
"""

import difflib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def commands(text):
    """Pairs of a command, with its input, and the lines it printed."""
    found = []
    for line in text.splitlines():
        if line.startswith(("$ ", "& ", "~ ")):
            found.append((line, []))
        elif line.startswith("  "):
            found[-1][1].append(line[2:])
    return found


def differences(expected, printed):
    """The commands that printed something else, each with the lines that are only in one of the two."""
    found = {}
    for (command, before), (_, after) in zip(commands(expected), commands(printed), strict=True):
        lines = [line[0] + " " + line[2:] for line in difflib.ndiff(before, after) if line[0] in "-+"]
        if lines:
            found.setdefault(command, []).extend(lines)
    return found


def accepted(path):
    """Of a file with reasons (`#`), commands and the lines in which they differ: command to reason and lines."""
    found, reason, lines = {}, [], None
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("# "):
            reason.append(line[2:])
        elif line.startswith("$ "):
            lines = []
            found[line] = (reason, lines)
            reason = []
        elif line:
            lines.append(line)
    return found


def write_accepted(path, differing, reasons):
    blocks = []
    for command, lines in differing.items():
        reason = reasons.get(command, ([], []))[0]
        blocks.append("\n".join([*(f"# {line}" for line in reason), command, *lines]) + "\n")
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if blocks:
        path.write_text("\n".join(blocks))


def verdict(differing, known):
    """What is wrong, or nothing."""
    for command, lines in differing.items():
        if command not in known:
            return f"[{command[2:]}] differs from Apache Kafka: " + " / ".join(lines)
        if known[command][1] != lines:
            return f"[{command[2:]}] differs otherwise than accepted: " + " / ".join(lines)
    for command, (reason, _) in known.items():
        if command not in differing:
            return f"[{command[2:]}] does not differ any more, but is accepted to"
        if not reason:
            return f"[{command[2:]}] is accepted to differ without a reason"
    return None


def main(arguments):
    mode = arguments.pop(0) if arguments[0].startswith("--") else ""
    folder = pathlib.Path(arguments.pop(0))
    for case in arguments:
        transcript, accept = HERE / "transcripts" / f"{case}.txt", HERE / "accepted" / f"{case}.txt"
        printed = (folder / f"{case}.txt").read_text()
        if mode == "--record":
            transcript.write_text(printed)
            continue
        differing = differences(transcript.read_text(), printed)
        if mode == "--accept":
            write_accepted(accept, differing, accepted(accept))
        wrong = verdict(differing, accepted(accept))
        print(json.dumps({"case": case, "ok": wrong is None} | ({"detail": wrong} if wrong else {})))


main(sys.argv[1:])
