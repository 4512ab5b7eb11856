"""The report card: card.json, and its table between the two marks of docs/compatibility.md."""

import json
import pathlib

COMPAT = pathlib.Path(__file__).resolve().parent.parent
CARD = COMPAT / "card.json"
PAGE = COMPAT.parent / "docs" / "compatibility.md"
BEGIN = "<!-- compat/run writes from here -->"
END = "<!-- to here -->"
# Where Milena kept the data, in the order of the columns.
STORES = ["embedded store", "Iggy's protocol", "Iggy server"]


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def update(about, results):
    """Puts these results in the place of earlier ones of the same clients over the same store, and leaves the others."""
    known = json.loads(CARD.read_text()) if CARD.exists() else {}
    for name, result in results.items():
        # How long it took says something about the machine only, and would change the file with every run.
        run = {"passed": result["passed"], "failed": result["failed"], "date": about["date"], "milena": about["milena"]}
        runs = known.get(name, {}).get("runs", {}) | {about["store"]: run}
        known[name] = {"version": result["version"], "cases": result["cases"], "excluded": result["excluded"], "runs": runs}
    write_json(CARD, known)
    text = PAGE.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{PAGE} lacks the marks [{BEGIN}] and [{END}]")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(known)}\n{END}{after}")


def table(known):
    stores = sorted({store for client in known.values() for store in client["runs"]}, key=STORES.index)
    rows = ["| Client | Version | Excluded, and why | " + " | ".join(f"Passed: {store}" for store in stores) + " |"]
    rows.append("| --- " * (3 + len(stores)) + "|")
    for name, client in sorted(known.items()):
        excluded = "<br>".join(f"{cases}: {cell(why)}" for why, cases in by_reason(client["excluded"])) or "none"
        passed = " | ".join(outcome(client, client["runs"].get(store)) for store in stores)
        rows.append(f"| {name} | {cell(client['version'])} | {excluded} | {passed} |")
    totals = []
    for store in stores:
        runs = [(client["runs"][store], client["cases"]) for client in known.values() if store in client["runs"]]
        passed, cases = sum(run["passed"] for run, _ in runs), sum(count for _, count in runs)
        dates = sorted(run["date"] for run, _ in runs)
        totals.append(f"{store}: {passed} of {cases}, the last on {dates[-1]}")
    return "\n".join([*rows, "", f"In all, {'; '.join(totals)}."]) + "\n"


def outcome(client, run):
    if run is None or client["cases"] == 0:
        return "-"
    failed = "".join(f"<br>`{case}`: {cell(why)}" for case, why in run["failed"].items())
    return f"{run['passed']} of {client['cases']}{failed}"


def by_reason(excluded):
    """Cases that are left out for the same reason stand together."""
    reasons = {}
    for case, why in excluded.items():
        reasons.setdefault(why, []).append(case if case == "all cases" else f"`{case}`")
    return [(why, ", ".join(cases)) for why, cases in reasons.items()]


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")
