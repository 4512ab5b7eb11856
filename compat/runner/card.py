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
        run = {key: value for key, value in result.items() if key != "seconds"} | {"date": about["date"], "milena": about["milena"]}
        known.setdefault(name, {})[about["store"]] = run
    write_json(CARD, known)
    write_between(BEGIN, table(known))


def write_between(begin, text):
    """Puts this text on the page, between that mark and the next end."""
    before, found, rest = PAGE.read_text().partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{PAGE} lacks the marks [{begin}] and [{END}]")
    PAGE.write_text(f"{before}{begin}\n\n{text}\n{END}{after}")


def table(known):
    """`known` is what each client did over each store: a run of one store says nothing about what ran over another one before."""
    stores = sorted({store for runs in known.values() for store in runs}, key=STORES.index)
    rows = ["| Client | Version | Excluded, and why | " + " | ".join(f"Passed: {store}" for store in stores) + " |"]
    rows.append("| --- " * (3 + len(stores)) + "|")
    for name, runs in sorted(known.items()):
        version = by_store(runs, lambda run: cell(run["version"]))
        excluded = by_store(runs, lambda run: "<br>".join(f"{cases}: {cell(why)}" for why, cases in by_reason(run["excluded"])) or "none")
        passed = " | ".join(outcome(runs.get(store)) for store in stores)
        rows.append(f"| {name} | {version} | {excluded} | {passed} |")
    totals = []
    for store in stores:
        ran = [runs[store] for runs in known.values() if store in runs]
        passed, cases = (sum(run[key] for run in ran) for key in ("passed", "cases"))
        dates = sorted(run["date"] for run in ran)
        totals.append(f"{store}: {passed} of {cases}, the last on {dates[-1]}")
    return "\n".join([*rows, "", f"In all, {'; '.join(totals)}."]) + "\n"


def by_store(runs, text):
    """One text when all stores have the same, else one for each."""
    texts = {store: text(runs[store]) for store in STORES if store in runs}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "<br>".join(f"{store}: {said}" for store, said in texts.items())


def outcome(run):
    if run is None or run["cases"] == 0:
        return "-"
    failed = "".join(f"<br>`{case}`: {cell(why)}" for case, why in run["failed"].items())
    return f"{run['passed']} of {run['cases']}{failed}"


def by_reason(excluded):
    """Cases that are left out for the same reason stand together."""
    reasons = {}
    # In the order of card.json, whatever the order of the file they come from.
    for case, why in sorted(excluded.items()):
        reasons.setdefault(why, []).append(case if case == "all cases" else f"`{case}`")
    return [(why, ", ".join(cases)) for why, cases in reasons.items()]


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")
