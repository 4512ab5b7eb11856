"""The report card: card.json, and its table between the two marks of docs/compatibility.md."""

import json
import pathlib

COMPAT = pathlib.Path(__file__).resolve().parent.parent
CARD = COMPAT / "card.json"
PAGE = COMPAT.parent / "docs" / "compatibility.md"
BEGIN = "<!-- compat/run writes from here -->"
END = "<!-- to here -->"


def write_json(path, about, results):
    stamped = {name: about | result for name, result in results.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stamped, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def update(about, results):
    """Puts these results in the place of earlier ones of the same clients, and leaves those of others."""
    earlier = json.loads(CARD.read_text()) if CARD.exists() else {}
    for result in results.values():
        # How long it took says something about the machine only, and would change the file with every run.
        result.pop("seconds")
    write_json(CARD, {}, earlier | {name: about | result for name, result in results.items()})
    text = PAGE.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{PAGE} lacks the marks [{BEGIN}] and [{END}]")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(CARD.read_text()))}\n{END}{after}")


def table(results):
    rows = [
        "| Client | Version | Cases | Passed | Failed | Excluded, and why | Against |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in sorted(results.items()):
        failed = "<br>".join(f"`{case}`: {cell(why)}" for case, why in result["failed"].items()) or "none"
        excluded = "<br>".join(f"{cases}: {cell(why)}" for why, cases in by_reason(result["excluded"])) or "none"
        against = f"{result['milena']}, {result['store']}, {result['date']}"
        rows.append(f"| {name} | {cell(result['version'])} | {result['cases']} | {result['passed']} | {failed} | {excluded} | {against} |")
    total = sum(result["cases"] for result in results.values())
    passed = sum(result["passed"] for result in results.values())
    rows += ["", f"{len(results)} clients, {total} cases, {passed} passed, {total - passed} failed."]
    return "\n".join(rows) + "\n"


def by_reason(excluded):
    """Cases that are left out for the same reason stand together."""
    reasons = {}
    for case, why in excluded.items():
        reasons.setdefault(why, []).append(f"`{case}`")
    return [(why, ", ".join(cases)) for why, cases in reasons.items()]


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")
