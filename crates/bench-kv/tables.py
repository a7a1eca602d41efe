#!/usr/bin/env python3
"""Prints the results of suites of key-value workloads as Markdown tables.

    betrfs-bench kv-ycsb,kv-transactions --format json > out.json
    crates/bench-kv/tables.py out.json

Each figure is the median of all rounds, in thousands of operations a second; the last column is that of the
store divided by the best of the others.
"""

import json
import statistics
import sys

STORE = "betree-store"
# The tables: heading, and what the names of their rows begin with.
TABLES = [
    ("YCSB, in memory", "kv-ycsb-"),
    ("YCSB, larger than memory", "kv-ycsb-large-"),
    ("Transactions", "kv-transactions-"),
    ("Idle views", "kv-views-"),
    ("Clones of dictionaries", "kv-clone-dict-"),
    ("Ingest, in kB a second", "kv-ingest-"),
    ("One operation at a time", "kv-"),
]


def rate(sample):
    """Operations a second."""
    return sample["operations"] / sample["seconds"]


def table_of(name):
    """The table that a measurement belongs to: the one with the longest prefix."""
    fitting = [prefix for _, prefix in TABLES if name.startswith(prefix)]
    return max(fitting, key=len, default=None)


def number(value):
    """Three digits that count, without an exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def print_table(heading, results):
    """Prints one table."""
    engines = []
    for result in results:
        engines += [each["engine"] for each in result["engines"] if each["engine"] not in engines]
    engines.sort(key=lambda engine: engine != STORE)
    print(f"\n### {heading}\n")
    print("| | " + " | ".join(engines) + " | least to most | times |")
    print("|---" * (len(engines) + 3) + "|")
    for result in results:
        rates = {each["engine"]: [rate(sample) for sample in each["rounds"]] for each in result["engines"]}
        failed = {each["engine"] for each in result["engines"] if each["failure"]}
        medians = {engine: statistics.median(all_) for engine, all_ in rates.items() if all_}
        others = [value for engine, value in medians.items() if engine != STORE]
        cells = [
            number(medians[engine] / 1000) if engine in medians else "failed" if engine in failed else "-"
            for engine in engines
        ]
        own = rates.get(STORE)
        spread = f"{number(min(own) / 1000)} to {number(max(own) / 1000)}" if own else "-"
        times = f"{medians[STORE] / max(others):.2f}" if others and STORE in medians else "-"
        print(f"| {result['workload']}: {result['about']} | " + " | ".join([*cells, spread, times]) + " |")


def main():
    """Prints all tables of a file."""
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    for heading, prefix in TABLES:
        chosen = [result for result in results if table_of(result["workload"]) == prefix]
        if chosen:
            print_table(heading, chosen)
    by_name = {result["workload"]: result["engines"][0]["rounds"] for result in results}
    written, pairs = by_name.get("kv-ingest-file"), by_name.get("kv-ingest-pairs")
    if written and pairs:
        ratios = [rate(ingest) / rate(file) for file, ingest in zip(written, pairs)]
        stored = [sample["device_write_bytes"] / sample["user_bytes"] for sample in pairs]
        print(f"\nIngest, of the device's rate: {statistics.median(ratios):.2f}; "
              f"bytes written for each stored: {statistics.median(stored):.2f}")
    none, idle = by_name.get("kv-views-0"), by_name.get("kv-views-1000")
    if none and idle:
        # Each turn with views against the one before it, without.
        ratios = [rate(with_) / rate(without) for without, with_ in zip(none, idle)]
        print(f"\nPuts beside 1,000 idle views, of those without: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
