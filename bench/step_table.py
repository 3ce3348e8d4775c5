#!/usr/bin/env python3
"""Table of a training step from the turns that scripts/bench measured: ours, its matrix products alone, JAX.

usage: step_table.py FOLDER    reads ours-*.json and jax-*.json, writes step_table.json there

Every figure is the median over turns; the spread is (largest - smallest) / median of the turns' medians.
"""
import json
import pathlib
import statistics
import sys

PEERS = {"demo": "jax"}  # configurations that the peer runs


def medians(run):
    """Counters of each configuration of one turn: medians over its repetitions."""
    values = {}
    for b in run["benchmarks"]:
        if b.get("run_type") != "iteration":
            continue
        name = b["name"].split("/")[1]
        for key in ("step_ms", "step_best_ms", "products_ms", "ratio"):
            values.setdefault(name, {}).setdefault(key, []).append(b[key])
    return {n: {k: statistics.median(v) for k, v in keys.items()} for n, keys in values.items()}


def figure(values):
    """Median and relative spread over turns; None without any."""
    if not values:
        return None
    middle = statistics.median(values)
    return {"median": middle, "best": min(values), "spread": (max(values) - min(values)) / middle}


def main(folder):
    ours_runs = [json.loads(p.read_text()) for p in sorted(folder.glob("ours-*.json"))]
    ours = [medians(r) for r in ours_runs]
    jax = [json.loads(p.read_text()) for p in sorted(folder.glob("jax-*.json"))]
    rows = []
    for name in ours[0]:
        row = {
            "configuration": name,
            "ours_ms": figure([t[name]["step_ms"] for t in ours]),
            "products_ms": figure([t[name]["products_ms"] for t in ours]),
            "ours_over_products": figure([t[name]["ratio"] for t in ours]),
            "jax_ms": None,
            "ours_over_jax": None,
        }
        if name in PEERS and jax:
            # The peer's fastest variant of each turn, against ours of the same turn.
            peer = [min(v["median"] for v in run["variants"].values()) for run in jax]
            row["jax_ms"] = figure(peer)
            row["ours_over_jax"] = figure([t[name]["step_ms"] / p for t, p in zip(ours, peer)])
        rows.append(row)
    context = {k: v for k, v in ours_runs[0]["context"].items() if k != "caches"}
    (folder / "step_table.json").write_text(json.dumps({"context": context, "turns": len(ours), "rows": rows}, indent=1) + "\n")

    def cell(f, width, digits=3):
        return f"{'-':>{width}}" if f is None else f"{f['median']:>{width - 8}.{digits}f} +-{50 * f['spread']:3.0f} %"

    print(f"\nTraining step, ms (median of {len(ours)} turns, +- half the spread); {context.get('host_numerics', '')}; commit {context.get('commit', '')}")
    print(f"{'configuration':<16}{'ours':>18}{'products':>18}{'ours/products':>18}{'JAX':>18}{'ours/JAX':>18}")
    for r in rows:
        print(f"{r['configuration']:<16}" + "".join(
            cell(r[k], 18) for k in ("ours_ms", "products_ms", "ours_over_products", "jax_ms", "ours_over_jax")))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
