#!/usr/bin/env python3
"""Acts with a Vulpes policy in NumPy and compares with an evaluation.

    vulpes evaluate runs/x/checkpoints/fold-1-best.h5 --out eval
    python3 examples/numpy_policy.py runs/x/checkpoints/fold-1-best.h5 eval/decisions.h5

Needs numpy and h5py (scripts/python-deps installs them: run this with .deps/venv/bin/python). Exits 1 unless every
action of the evaluation is reproduced.
"""
import argparse
import sys

try:
    import h5py
    import numpy as np
except ModuleNotFoundError as missing:
    h5py = np = None
    MISSING = missing.name

BRANCHES = {"exposure": 9, "order": 3, "urgency": 3}


def q_values(policy, states):
    """Q of every action: list of [N, actions] a branch, for states [N, S]."""
    p = {name: policy["parameters/" + name][()].astype(np.float64) for name in policy["parameters"]}
    atoms = int(policy["network/atoms"][()])
    support = np.linspace(policy["support/vmin"][()], policy["support/vmax"][()], atoms)

    def relu_layer(x, weight, bias):
        return np.maximum(x @ weight.T + bias, 0.0)

    h = relu_layer(states.astype(np.float64), p["trunk.0.weight"], p["trunk.0.bias"])
    h = relu_layer(h, p["trunk.1.weight"], p["trunk.1.bias"])
    for block in range(int(policy["network/blocks"][()])):
        h = h + relu_layer(h, p[f"block.{block}.weight"], p[f"block.{block}.bias"])

    width = int(policy["network/head_hidden"][()])
    heads, first = {}, 0
    for index, head in enumerate(["value", *BRANCHES]):
        hidden = relu_layer(h, p[f"hidden.{head}.weight"], p["hidden.bias"][index * width : (index + 1) * width])
        weight = p[f"output.{head}.weight"]
        heads[head] = (hidden @ weight.T + p["output.bias"][first : first + len(weight)]).reshape(len(states), -1, atoms)
        first += len(weight)

    q = []
    for branch in BRANCHES:
        logits = heads["value"] + heads[branch] - heads[branch].mean(axis=1, keepdims=True)
        e = np.exp(logits - logits.max(axis=2, keepdims=True))
        q.append((e / e.sum(axis=2, keepdims=True)) @ support)
    return q


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", help="a file of a run's checkpoints/ folder")
    parser.add_argument("decisions", help="decisions.h5 of 'vulpes evaluate --out'")
    arguments = parser.parse_args()
    if h5py is None:
        print(f"numpy_policy.py: the Python package '{MISSING}' is missing: run scripts/python-deps, then "
              f".deps/venv/bin/python {sys.argv[0]} ...", file=sys.stderr)  # fmt: skip
        sys.exit(2)
    with h5py.File(arguments.policy) as policy, h5py.File(arguments.decisions) as decisions:
        q = q_values(policy, decisions["states"][()])
        ours = np.stack([branch.argmax(axis=1) for branch in q], axis=1)
        theirs = decisions["actions"][()]
    same = (ours == theirs).all(axis=1)
    print(f"{same.sum()} of {len(same)} decisions reproduced")
    sys.exit(0 if same.all() else 1)


if __name__ == "__main__":
    main()
