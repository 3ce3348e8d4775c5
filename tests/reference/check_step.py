#!/usr/bin/env python3
"""Compares `vulpes step` with the float64 reference on random networks, settings, batches and replays.

    check_step.py --vulpes build/host/bin/vulpes                 50 random cases, then each part alone; worst errors
    check_step.py --vulpes build/host/bin/vulpes --mutate        negative control: every planted fault must be reported
    check_step.py --self-check                                   the reference against differences and closed forms

Every case runs on each back end of --devices. Exit status: 0 all agree, 1 a difference (or a fault that went unseen),
77 Python packages are missing.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

# Small arrays, one compilation a shape: optimising passes and threads cost more than they give.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false")

try:
    import h5py
    import numpy as np

    import cases
    import reference
    import replay
    from cases import make_case
except ImportError as missing:
    print(f"skipped: {missing} (scripts/python-deps installs it)")
    sys.exit(77)

TIE = 1e-5  # best actions whose values are closer than this may be chosen differently in float32
TIED_SHARE = 1e-3  # of all rows, at most

# Group of datasets -> (how its error is measured, largest allowed).
#   largest: |difference| / largest |element| of the dataset   absolute: |difference|
#   rate: |difference| less one rounding of the value, over the learning rate
#   support: |difference| / (vmax - vmin)
#   position: |difference| / max(Z - 1, 8); a particle's position is a float32 of that size, and its mass is split by it
TOLERANCES = {
    "drawn": ("absolute", 0),
    "gathered": ("largest", 1e-6),
    "donors": ("absolute", 0),
    "block_factors": ("absolute", 1e-12),
    "logits": ("largest", 1e-5),
    "q": ("support", 5e-6),
    "next_action": ("absolute", 0),
    "target": ("position", 1.5 * 2.0**-23),
    "target mass": ("absolute", 1e-6),
    "clipped": ("absolute", 3e-6),
    "loss": ("largest", 1e-5),
    "kl": ("largest", 3e-5),  # a difference of two float32 sums, and so is delta
    "delta": ("largest", 3e-5),
    "label": ("absolute", 5e-6),
    "policy": ("absolute", 5e-6),
    "logit_gradient": ("largest", 1e-5),
    "gradient": ("largest", 1e-5),
    "gradient_norm": ("largest", 1e-5),
    "clip": ("largest", 1e-5),
    "spectral": ("largest", 1e-5),
    "first moment": ("largest", 1e-5),
    "second moment": ("largest", 3e-5),  # squares; and 1 - beta2 of a float32 beta2 is 1.3e-5 off
    "parameters": ("rate", 1e-3),
    "mask": ("absolute", 0),
    "priorities": ("absolute", 0),  # from the program's own deltas, which are compared apart
    "replay": ("absolute", 0),
    "q_delta": ("largest", 5e-5),  # differences of float32 Q
    "counters": ("largest", 1e-5),
    "verdict": ("absolute", 0),
}
POISONS = ("NaN reward", "Inf parameter", "NaN state")
NOT_WRITTEN = ("gap", "margin")
DRAWN = ("rows", "leaves", "actions", "relabelled", "donors")
SECOND_NAMES = {
    "online": "parameters",
    "target": "parameters",
    "first_moment": "first moment",
    "second_moment": "second moment",
    "mask": "mask",
    "spectral": "spectral",
}


# --- Files -----------------------------------------------------------------------------------------------------------


def toml(case, device):
    n = case.shape
    text = lambda v: str(v).lower() if isinstance(v, bool) else f'"{v}"' if isinstance(v, str) else repr(v)
    values = {
        "run.device": device,
        "network.hidden1": n.hidden1,
        "network.hidden2": n.hidden2,
        "network.residual_blocks": n.blocks,
        "network.head_hidden": n.head_hidden,
        "network.atoms": n.atoms,
        **case.settings,
    }
    return "".join(f"{name} = {text(value)}\n" for name, value in values.items())


def write_state(path, case, device):
    with h5py.File(path, "w") as f:
        f["config"] = np.bytes_(toml(case, device))  # of fixed length
        for name, value in case.state.items():
            f[name] = value


def read_result(path):
    """Name -> array of every dataset."""
    out = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda name, item: out.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
    return out


def run_vulpes(program, folder, case, device, *options):
    state, out = pathlib.Path(folder, "in.h5"), pathlib.Path(folder, "out.h5")
    write_state(state, case, device)
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "false"}
    done = subprocess.run(
        [program, "step", "--state", state, "--out", out, *options], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(
            f"vulpes step left with status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return read_result(out)


# --- Comparison ------------------------------------------------------------------------------------------------------


def group_of(name):
    first, _, rest = name.partition("/")
    if name == "loss/kl":
        return "kl"
    if first == "batch":
        return "drawn" if rest in DRAWN else "gathered"
    if first in ("optimiser", "snapshot"):
        return SECOND_NAMES[rest.split("/")[0]]
    if first in ("skipped", "rolled_back", "snapshot_taken"):
        return "verdict"
    return {"gradient_norms": "gradient_norm", "mask_count": "mask", "donors_outside": "donors"}.get(first, first)


def rate_of(case):
    return case.settings.rate(case.iteration) * reference.counters_of(case.state)["rate_multiplier"]


def error_of(case, name, seen, right):
    """The error of a dataset in the measure of its group; infinite where shapes differ or only one is finite. What is
    not finite must be so in both."""
    seen, right = np.asarray(seen, np.float64).reshape(-1), np.asarray(right, np.float64).reshape(-1)
    if seen.shape != right.shape or np.any(np.isfinite(seen) != np.isfinite(right)):
        return np.inf
    finite = np.isfinite(right)
    seen, right = seen[finite], right[finite]
    if len(right) == 0:
        return 0.0
    difference = np.abs(seen - right)
    measure, _ = TOLERANCES[group_of(name)]
    if measure == "largest":
        largest = np.max(np.abs(right))
        return difference.max() / largest if largest > 0 else difference.max()
    if measure == "position":
        return difference.max() / max(case.shape.atoms - 1, 8)
    if measure == "support":
        return difference.max() / (case.state["support/vmax"] - case.state["support/vmin"])
    if measure == "rate":
        return np.maximum(0, difference - np.finfo(np.float32).eps * np.abs(right)).max() / rate_of(case)
    return difference.max()


def expected(case, seen):
    """The reference's result, with the program's own choice of actions where two are as good; and their number."""
    choices = {**seen, "next_action": None}
    right = reference.step(case.state, case.settings, choices)
    tied = right["gap"] < TIE
    if tied.any():
        choices["next_action"] = np.where(tied, np.asarray(seen["next_action"], np.int64), -1)
        right = reference.step(case.state, case.settings, choices)
    return right, int(tied.any(axis=1).sum())


def derived(case, result):
    """A result with what follows from it: target mass, pruned weights, donors that are none."""
    more = {}
    if "target" in result:
        more["target mass"] = np.sum(result["target"], axis=-1, dtype=np.float64)
    for name, mask in result.items():
        if name.startswith("mask/"):
            more.setdefault(f"mask_count/{name[len('mask/'):]}", int(np.sum(mask)))
    if all(f"batch/{n}" in result for n in ("rows", "relabelled", "donors")):
        ring, horizon = replay.Ring(case.state), case.settings["hindsight.horizon"]
        more["donors_outside"] = sum(
            relabelled and donor not in replay.candidates(ring, int(row), horizon)
            for row, relabelled, donor in zip(*(result[f"batch/{n}"] for n in ("rows", "relabelled", "donors")))
        )
    return {**more, **result}


def compare(case, seen, right):
    """Group -> (worst error, dataset); a missing or unknown dataset has an infinite error."""
    worst = {}
    seen, right = derived(case, seen), derived(case, right)
    for name in {**right, **seen}:
        if name in NOT_WRITTEN:
            continue
        if name.startswith("gradient/") and name in right and not np.all(np.isfinite(right[name])):
            continue  # ReLUs keep the NaN from some elements, in either way; the norm has it
        error = error_of(case, name, seen[name], right[name]) if name in seen and name in right else np.inf
        if error >= worst.get(group_of(name), (-1.0, ""))[0]:
            worst[group_of(name)] = (error, name)
    return worst


def compared(case, seen):
    """Errors against the reference, group -> (error, dataset), and the number of rows with tied actions."""
    right, tied = expected(case, seen)
    return compare(case, seen, right), tied


def failures(worst):
    return {g: e for g, e in worst.items() if not e[0] <= TOLERANCES[g][1]}


def check_skip(case, seen):
    """A skipped step leaves everything but the projection and `iteration` as it was. As `compared`."""
    right = {k: v for k, v in case.state.items() if k.startswith(("parameters/target/", "optimiser/"))}
    with np.errstate(invalid="ignore"):
        online = reference.project_weights(case.state, case.settings)[0]
    right |= {f"parameters/online/{k}": v for k, v in online.items() if np.all(np.isfinite(v))}
    right |= {
        "counters/iteration": case.state["counters/iteration"] + np.uint64(1),
        "counters/adam_t": case.state["counters/adam_t"],
        "skipped": True,
    }
    return compare(case, {k: seen[k] for k in right if k in seen}, right), 0


# --- Negative control ------------------------------------------------------------------------------------------------


def faulty_results(case, seen, right):
    """Results with one plausible fault each, as (name, result)."""

    def changed(name, value):
        return {**seen, name: value}

    # Every dataset in turn: its largest element off by ten times what is allowed, or by one.
    for name in right:
        value = np.array(seen.get(name, 0))
        if name not in seen or value.size == 0 or not np.all(np.isfinite(value)):
            continue
        measure, allowed = TOLERANCES[group_of(name)]
        unit = {
            "rate": rate_of(case),
            "support": case.state["support/vmax"] - case.state["support/vmin"],
            "position": max(case.shape.atoms - 1, 8),
            "largest": np.abs(value).max() or 1,
            "absolute": 1,
        }[measure]
        place = np.unravel_index(np.argmax(np.abs(value)), value.shape)
        if value.dtype.kind == "f":
            value = value.astype(np.float64)
            value[place] += max(
                10 * allowed * unit, 1e-6 * (allowed == 0), 2.0**-20 * abs(value[place]) * (measure == "rate")
            )
        else:
            value[place] ^= 1
        yield f"one element of {name}", changed(name, value)
        yield f"no {name}", {k: v for k, v in seen.items() if k != name}
    yield "an unknown dataset", {**seen, "logits/more": np.zeros(3)}
    weights = np.asarray(right.get("batch/weights", case.state.get("batch/weights")), np.float64)
    if "loss/total" in seen and np.isfinite(seen["loss/total"]):
        yield "importance weights left out of the loss", changed("loss/total", np.mean(seen["loss/rows"] / weights))
    if np.all(np.isfinite(seen["delta"])):
        yield "priorities of the neighbouring rows", changed("delta", np.roll(seen["delta"], 1))
    if right["skipped"] and not right["rolled_back"] and "counters/stopped" in right and not right["counters/stopped"]:
        with np.errstate(invalid="ignore"):
            _, old, new, _ = reference.project_weights(case.state, case.settings)
        for name in old:
            if np.abs(new[name][1] - old[name][1]).max() > 1e-4:
                yield "u and v advance in a refused step", changed(
                    f"spectral/v/{name}", new[name][1].astype(np.float32)
                )
                break
        if case.drawn:
            leaves = replay.update_priorities(case.state["replay/leaves"], right, np.ones(len(weights)), case.settings)
            yield "priorities of a refused step", {**seen, **{k: v for k, v in leaves.items() if k in seen}}


def setting_faults(case):
    """Settings of the reference that are one plausible fault off, as (name, changes): only where the part is on."""
    s, iteration = case.settings, case.iteration
    on = case.on.__contains__
    factor = lambda name, by: (name, {name: s[name] * by})
    yield "plain for double DQN, or the reverse", {"agent.double_dqn": not s["agent.double_dqn"]}
    yield "the other aggregation", {"agent.target": "mean" if on("per branch") else "per_branch"}
    if iteration == s["agent.warmup_steps"] - 1:
        yield "warm-up one step short", {"agent.warmup_steps": iteration, "agent.blend_steps": 0}
    if 0 < s.blend(iteration) < 1:
        yield "blending one step late", {"agent.warmup_steps": s["agent.warmup_steps"] + 1}
    yield factor("optimiser.learning_rate", 1.01)
    if iteration < s["optimiser.ramp_steps"]:
        yield "ramp one step late", {"optimiser.ramp_steps": s["optimiser.ramp_steps"] + 1}
    elif s["optimiser.final_fraction"] < 1:
        yield "decline one step late", {"optimiser.final_fraction": 0.99 * s["optimiser.final_fraction"]}
    yield factor("optimiser.tau", 1.1)
    if on("decay"):
        yield "no weight decay", {"optimiser.weight_decay": 0.0}
    if on("clip"):
        yield factor("optimiser.clip_norm", 1.01)
    if on("spectral trunk"):
        yield factor("optimiser.spectral_trunk", 0.9)
    if on("spectral output"):
        yield factor("optimiser.spectral_output", 0.9)
    yield "trunk scale the other way", {"agent.scale_trunk_gradient": not s["agent.scale_trunk_gradient"]}
    if on("depth"):
        yield "no stochastic depth", {"network.survival": 1.0}
        yield factor("network.survival", 0.99)
    if on("cql"):
        yield "no CQL", {"cql.weight": 0.0}
        yield factor("cql.weight", 1.01)
    if on("auxiliary"):
        for name in ("weight", "temperature", "label_temperature", "risk"):
            yield factor(f"auxiliary.{name}", 1.01)
        yield "label without half the spread", {"account.half_spread_bp": 0.0}
        yield "auxiliary weight that does not fall", {"auxiliary.final_fraction": 1.0}
    if on("diversity"):
        yield "no diversity loss", {"diversity.weight": 0.0}
        yield factor("diversity.weight", 1.01)
    if on("causal"):
        yield "causal rows", {"causal.rows": s["causal.rows"] // 2}
        yield "no causal measurement", {"causal.every": 0}
    if on("injected NaN"):
        yield "no injected NaN", {"inject.nan_step": -1}
    if on("injected spike"):
        yield factor("inject.grad_spike_factor", 1.01)
    if on("spike bound"):
        yield "no bound", {"guard.spike_factor": 0.0}
        yield factor("guard.spike_factor", 0.1)
        yield "no floor", {"guard.spike_floor": 0.0}
    yield factor("guard.norm_rate", 1.1)
    if on("rollback"):
        yield "one skip more before a rollback", {"guard.patience": s["guard.patience"] + 1}
        yield "one rollback more before the stop", {"guard.max_rollbacks": s["guard.max_rollbacks"] + 1}
        yield "snapshot one update late", {"guard.snapshot_steps": s["guard.snapshot_steps"] + 1}
    if on("pruning"):
        yield factor("pruning.sparsity", 1.02)
        yield "pruning begins later", {"pruning.begin_fraction": s["pruning.begin_fraction"] + 0.05}
    if case.drawn:
        for name, by in (("replay.alpha", 1.01), ("replay.beta", 1.1), ("replay.epsilon", 1.1), ("agent.gamma", 0.999)):
            yield factor(name, by)
        yield "another window", {"collect.window": s["collect.window"] + 1}
        yield "another seed", {"run.seed": s["run.seed"] ^ 1}
        yield "returns one bar longer", {"agent.n_step": s["agent.n_step"] + 1}
    if on("n-step"):
        yield "returns one bar shorter", {"agent.n_step": s["agent.n_step"] - 1}
    if on("bonus"):
        yield factor("reward.goal_bonus", 1.01)
    if on("inventory"):
        yield factor("reward.inventory_penalty", 1.01)
    if on("bonus") or on("hindsight"):
        yield factor("goal.clip", 1.1)
    if on("hindsight"):
        yield "no hindsight", {"hindsight.share": 0.0}
        yield "donors one bar nearer", {"hindsight.horizon": max(1, s["hindsight.horizon"] - 1)}
        yield "relabelled rows' priorities the other way", {
            "hindsight.update_priorities": not s["hindsight.update_priorities"]
        }


def state_faults(case):
    """Datasets that the reference sees otherwise than the program, as (name, changes)."""
    state = case.state
    more = lambda name, by: (f"{name} + {by}", {name: state[name] + type(state[name])(by)})
    yield more("counters/adam_t", 1)
    yield more("fold", 1)
    yield "support one percent wider", {"support/vmax": np.float64(state["support/vmax"] * 1.01)}
    yield "online network for the target", {
        f"parameters/target/{n}": v for n, v in reference.group(state, "parameters/online/").items()
    }
    if "counters/rate_multiplier" in state:
        yield "rate multiplier left out", {"counters/rate_multiplier": 1.0}
    if "auxiliary" in case.on:
        yield "auxiliary multiplier left out", {"counters/auxiliary_multiplier": 1.0}
        yield "another deviation of returns", {"market/return_sd": state["market/return_sd"] * 1.01}
    if "causal" in case.on:
        groups = np.array(state["causal/groups"])
        groups[[0, 1]] = groups[[1, 0]]
        yield "two inputs in each other's group", {"causal/groups": groups}
    if any(n.startswith("mask/") for n in state):
        yield "mask not held", {n: np.zeros_like(v) for n, v in state.items() if n.startswith("mask/")}
    if case.drawn:
        yield more("replay/slots_written", 1)
        yield "other features", {"market/features": state["market/features"][::-1]}
        yield "reward scale", {"market/reward_scale": state["market/reward_scale"] * 1.01}
        yield "accounts before and after exchanged", {
            "replay/before": state["replay/after"],
            "replay/after": state["replay/before"],
        }
    else:
        swapped = {"batch/states": state["batch/next_states"], "batch/next_states": state["batch/states"]}
        yield "next states swapped with states", swapped
        yield "terminal rows bootstrapped", {
            "batch/discounts": np.where(state["batch/discounts"] == 0, np.float32(0.95), state["batch/discounts"])
        }


def formula_faults(case):
    """Formulas of the reference with one plausible fault each, as (name, context in which they are in effect)."""

    def instead(module, name, f):
        """`f` gets the original function and its arguments."""
        original = getattr(module, name)
        return mock.patch.object(module, name, lambda *a, **k: f(original, *a, **k))

    def other_index(purpose, by):
        return instead(
            replay, "random_words", lambda f, key, p, i, index: f(key, p, i, index + (by if p == purpose else 0))
        )

    def first_wins(original, leaves, batch, deltas, settings):
        out = original(leaves, batch, deltas, settings)
        new = np.array(leaves, np.uint32)
        for row, units in list(zip(out["priorities/rows"], out["priorities/units"]))[::-1]:
            if row != replay.NO_ROW:
                new.reshape(-1)[row] = units
        return {**out, **replay.leaves_after(new)}

    def across(original, ring, row):
        for w in range(ring.write(row), ring.written):
            yield (w % ring.slots) * ring.envs + row % ring.envs

    def uncapped(original, settings, before, norm):
        free = original(settings.replace({"guard.spike_factor": 0.0}), before, norm)[0]
        counters, *verdict = original(settings, before, norm)
        return {**counters, "norm_mean": free["norm_mean"]}, *verdict

    def not_halved(original, settings, before, norm):
        counters, *verdict = original(settings, before, norm)
        return {**counters, "rate_multiplier": before["rate_multiplier"]}, *verdict

    if case.drawn:
        yield "of rows drawn twice the first wins", instead(replay, "update_priorities", first_wins)
        yield "words of the next draw", other_index("sample", 1)
        yield "episodes that go on after their end", instead(replay.Ring, "later", across)
    if "bonus" in case.on:
        yield "a goal met before is paid again", instead(replay, "peak_growth", lambda f, *a: -np.inf)
    if "hindsight" in case.on:
        yield "nearest donor always", instead(replay, "below", lambda f, word, bound: 0)
        yield "growth before the donor", instead(
            replay, "achieved", lambda f, ring, row: float(ring.get("before", row)[3])
        )
        yield "words of the next row's hindsight", other_index("hindsight", 1)
    if "depth" in case.on:
        yield "blocks not divided by their survival", instead(
            replay, "block_factors", lambda f, *a: (f(*a) > 0).astype(np.float64)
        )
        yield "another block's draw", other_index("depth", 7)
    if "causal" in case.on:
        yield "other donors of the causal measurement", other_index("causal", 1)
    if "spike bound" in case.on:
        yield "mean of the norm without its cap", instead(reference, "judge", uncapped)
    if "rollback" in case.on:
        yield "rate not halved", instead(reference, "judge", not_halved)


def negative_control(case, seen):
    """Plants every fault. Names of those that were reported, missed, and that change nothing in this case."""
    right, _ = expected(case, seen)
    reported, missed, idle = [], [], []
    for name, result in faulty_results(case, seen, right):
        same = {n for n in seen if n in result and result[n] is seen[n]}
        touched = [{n: v for n, v in x.items() if n not in same} for x in (result, right)]
        (reported if failures(compare(case, *touched)) else missed).append(name)

    def plant(name, mutant, context=contextlib.nullcontext()):
        with context, np.errstate(all="ignore"):
            wrong = expected(mutant, seen)[0]
        if not any(not e <= 3 * TOLERANCES[g][1] for g, (e, _) in compare(case, right, wrong).items()):
            return idle.append(name)
        (reported if failures(compare(case, seen, wrong)) else missed).append(name)

    for name, changes in setting_faults(case):
        plant(name, dataclasses.replace(case, settings=case.settings.replace(changes)))
    for name, changes in state_faults(case):
        plant(name, dataclasses.replace(case, state={**case.state, **changes}))
    for name, context in formula_faults(case):
        plant(name, case, context)
    return reported, missed, idle


def mutate(options, folder):
    """True when every fault was reported wherever it changes something, and each does so in some case."""
    counts, bad = {}, []
    for index in range(options.cases):
        case = make_case(options.seed, index)
        seen = run_vulpes(options.vulpes, folder, case, options.devices[0])
        wrong = failures(compared(case, seen)[0])
        for name in wrong.values():
            bad.append(f"{case.name}: {name} is wrong without a fault")
        results = dict(zip(("reported", "missed", "idle"), negative_control(case, seen)))
        print(f"{case.name:44s} " + ", ".join(f"{len(names)} {kind}" for kind, names in results.items()), flush=True)
        for kind, names in results.items():
            for name in names:
                counts.setdefault(name, dict.fromkeys(results, 0))[kind] += 1
        bad += [f"{case.name}: {name} was not reported" for name in results["missed"]]
    bad += [f"{name}: changed nothing in any of {c['idle']} cases" for name, c in counts.items() if not c["reported"]]
    planted = [c for c in counts.values() if c["reported"] + c["missed"]]
    for line in bad:
        print(f"FAILED  {line}")
    total = sum(c["reported"] for c in planted)
    print(f"{len(planted)} faults planted, {total} times in {options.cases} cases; {len(bad)} failed")
    return not bad


# --- Self check ------------------------------------------------------------------------------------------------------


def self_check(seed):
    """The reference's gradient against central differences of its loss, and its parts against known values."""
    bad = []

    def check(name, error, allowed):
        print(f"{name:58s} {error:9.1e}  {'' if error <= allowed else 'FAILED'}")
        if not error <= allowed:
            bad.append(name)

    parts = {"double", "depth", "trunk scale", "cql", "auxiliary", "diversity"}
    for index, on in ((1, parts - {"trunk scale"}), (6, parts | {"warm-up"}), (11, set())):
        case = make_case(seed, index, parts=on)
        rng = np.random.default_rng(seed)
        result, gradient = reference.evaluate(case.state, case.settings)
        online, worst = reference.group(case.state, "parameters/online/"), 0.0
        for name, g in gradient.items():
            if "trunk scale" in on and not name.startswith(("hidden", "output")):
                continue  # a scaled gradient is not that of the loss
            direction, h = rng.normal(0, 1, g.shape), 1e-6
            direction /= np.linalg.norm(direction)
            moved = [
                held_loss(case, {**online, name: online[name] + sign * h * direction}, result["target"])
                for sign in (1, -1)
            ]
            numeric = (moved[0] - moved[1]) / (2 * h)
            worst = max(worst, abs(numeric - np.sum(g * direction)) / max(np.linalg.norm(g), 1e-9))  # a dropped block
        check(f"gradient, case {index} ({', '.join(sorted(on)) or 'plain'})"[:57], worst, 1e-6)
        moved = [
            held_loss(case, online, result["target"], sign * 1e-6 * np.sign(result["logit_gradient"]))
            for sign in (1, -1)
        ]
        numeric = (moved[0] - moved[1]) / 2e-6
        check(f"logit gradient, case {index}", abs(numeric / np.abs(result["logit_gradient"]).sum() - 1), 1e-6)
        check(f"target mass, case {index}", np.abs(result["target"].sum(axis=2) - 1).max(), 1e-12)
        if "trunk scale" in on:
            _, unscaled = reference.evaluate(case.state, case.settings.replace({"agent.scale_trunk_gradient": False}))
            wrong = [
                np.abs(unscaled[n] * (0.25 if n.startswith(("trunk", "block")) else 1) - g).max() / np.abs(g).max()
                for n, g in gradient.items()
                if np.abs(g).max() > 0
            ]
            check("trunk's gradient is a quarter, the heads' whole", max(wrong), 1e-12)

    z = np.linspace(-1, 1, 5)
    p = np.array([[0.1, 0.2, 0.4, 0.2, 0.1]])
    for r, discount, right in (
        (0.5, 0.0, [0, 0, 0, 1, 0]),
        (0.0, 1.0, p[0]),
        (100.0, 0.9, [0, 0, 0, 0, 1]),
        (0.25, 0.9, [0.03, 0.15, 0.32, 0.32, 0.18]),
    ):
        m, _ = reference.project(p, np.array([r]), np.array([discount]), z)
        check(f"projection of R {r}, discount {discount}", np.abs(np.asarray(m)[0] - right).max(), 1e-12)

    w = np.diag([3.0, 1.0])
    u, _ = reference.start_vectors(w)
    check("spectral norm of diag(3, 1)", abs(reference.power_iteration(w, u)[0] - 3), 1e-12)
    w = np.random.default_rng(seed).normal(0, 1, (9, 7))
    u, _ = reference.start_vectors(w, 500)
    sigma = reference.power_iteration(w, u)[0]
    check("spectral norm against the singular values", abs(sigma - np.linalg.norm(w, 2)), 1e-9)
    nothing = reference.start_vectors(np.zeros((3, 2)))[0]
    check("spectral norm of 0", reference.power_iteration(np.zeros((3, 2)), nothing)[0], 0)

    # p = 1, g = 0, rate = decay = 0.1 -> 0.99 for a weight, 1 for a bias.
    case = make_case(seed, 1, parts=set())
    case.state |= {k: np.zeros_like(v) for k, v in case.state.items() if k.startswith(("optimiser/", "batch/weights"))}
    still = {"optimiser.learning_rate": 0.1, "optimiser.final_fraction": 1.0, "optimiser.ramp_steps": 0}
    after = reference.step(case.state, case.settings.replace({**still, "optimiser.weight_decay": 0.1}))
    before = reference.group(case.state, "parameters/online/")
    for name, by in (("hidden.order.weight", 0.99), ("hidden.bias", 1.0)):
        check(f"decoupled decay of {name}", np.abs(after[f"parameters/online/{name}"] - by * before[name]).max(), 1e-12)

    # Philox's known answers: Random123, kat_vectors.
    for counter, key, right in (
        ([0] * 4, [0] * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        check(
            f"Philox of counter {counter[0]:x} ...", sum(a != b for a, b in zip(replay.philox(counter, key), right)), 0
        )

    # Two orthogonal heads and one parallel to the first: one of three pairs has cos^2 = 1. A zero head counts 0.
    hidden = [np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]), np.array([[3.0, 0.0]])]
    check("squared cosines of three heads", abs(float(reference.squared_cosines(hidden)[0]) - 1 / 3), 1e-15)
    check(
        "squared cosine with a zero head",
        float(reference.squared_cosines([0 * hidden[0], hidden[1], hidden[1]])[0]) - 1 / 3,
        1e-15,
    )
    # No cost, no risk: odds of two levels are exp(their distance r / (temperature sd)).
    scalars = {"cost": 0.0, "risk": 0.0, "sd": 0.01, "label_temperature": 0.5}
    label = reference.exposure_label({"next_returns": np.array([0.01]), "exposures": np.array([0.5])}, scalars)
    check("label's odds of two levels", abs(float(label[0, 8] / label[0, 0]) - np.exp(4.0)), 1e-10)
    pruning = reference.Settings({"pruning.sparsity": 0.8, "train.steps": 100})
    check("cubic sparsity half way", abs(pruning.sparsity(50) - 0.8 * 7 / 8), 1e-15)
    check("sparsity at the ends", abs(pruning.sparsity(0)) + abs(pruning.sparsity(100) - 0.8), 1e-15)
    return not bad


def held_loss(case, online, m, offset=None):
    """The loss of `online` against fixed targets m."""
    rows = len(m)
    batch = {"next_returns": np.zeros(rows), "exposures": np.zeros(rows)} | reference.group(case.state, "batch/")
    batch["actions"] = np.asarray(case.state["batch/actions"], np.int32)
    z = np.linspace(float(case.state["support/vmin"]), float(case.state["support/vmax"]), case.shape.atoms)
    if offset is None:
        offset = np.zeros((rows, sum(reference.HEAD_ROWS) * case.shape.atoms))
    w = reference.scalars(case.state, case.settings, case.shape.blocks)
    return float(reference.loss_jit(online, offset, m, batch, z, w))


# --- Command line ----------------------------------------------------------------------------------------------------


def run_cases(options, folder):
    """All random cases, then each part alone; True when all agree."""
    bad, total = [], {}
    tied = rows = 0
    todo = [(make_case, (options.seed, i), compared) for i in range(options.cases)]
    for i, part in enumerate(cases.PARTS):
        on, alone = {part}, f"{part} alone"
        while any(cases.NEEDS.get(p, part) not in on for p in on):
            on |= {cases.NEEDS[p] for p in on if p in cases.NEEDS}
        todo.append((make_case, (options.seed, 1000 + i, on, alone), compared))
    given = make_case(options.seed, 0)
    todo += [(cases.poisoned, (given, kind), check_skip) for kind in POISONS]
    counts = dict.fromkeys(cases.PARTS, 0)
    outcomes = dict.fromkeys(("skipped", "rolled_back", "counters/stopped", "snapshot_taken"), 0)
    for k, (make, arguments, check) in enumerate(todo):
        case = make(*arguments)
        results = []
        try:
            for device in options.devices:
                seen = run_vulpes(options.vulpes, folder, case, device)
                worst, of_case = check(case, seen)
                results.append(seen)
                report(f"{case.name} {device}", worst, total, bad)
        except RuntimeError as error:
            print(f"{case.name:44s} {error}")
            bad.append(case.name)
            continue
        if check is compared:
            tied, rows = tied + of_case, rows + len(results[0]["delta"])
        if k < options.cases:
            for part in case.on:
                counts[part] += 1
            for name in outcomes:
                outcomes[name] += bool(results[0][name])

    print(f"\n{'datasets':16s} {'worst':>9s} {'allowed':>9s}  measure   where")
    for g, (error, name, where) in sorted(total.items(), key=lambda item: list(TOLERANCES).index(item[0])):
        measure, allowed = TOLERANCES[g]
        print(f"{g:16s} {error:9.1e} {allowed:9.0e}  {measure:8s}  {name} ({where.split(',')[0]})")
    print("parts on: " + ", ".join(f"{p} {n}" for p, n in counts.items()))
    print("outcomes: " + ", ".join(f"{n.split('/')[-1]} {c}" for n, c in outcomes.items()))
    print(f"{tied} of {rows} rows have two best actions closer than {TIE:g}")
    if tied > TIED_SHARE * rows:
        bad.append(f"more than {TIED_SHARE:g} of the rows are tied")
    if options.cases >= 50:
        bad += [f"{p} is on in only {n} cases" for p, n in counts.items() if n < options.cases / 5]
        bad += [f"no case with {n}" for n, c in outcomes.items() if c == 0]
    for line in bad:
        print(f"FAILED  {line}")
    print(f"{len(todo)} cases on {' and '.join(options.devices)}; {len(bad)} failed")
    return not bad


def report(name, worst, total, bad):
    wrong = failures(worst)
    for g, (error, dataset) in worst.items():
        if error >= total.get(g, (-1.0,))[0]:
            total[g] = (error, dataset, name)
    print(f"{name:52s} " + ("ok" if not wrong else "; ".join(f"{n}: {e:.1e}" for e, n in wrong.values())), flush=True)
    if wrong:
        bad.append(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vulpes", metavar="PATH", help="the program under test")
    parser.add_argument("--cases", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--devices", type=lambda text: text.split(","), default=["default", "serial"], metavar="A,B", help="run.device"
    )
    parser.add_argument("--mutate", action="store_true", help="plant faults; exit 1 if one is not reported")
    parser.add_argument("--self-check", action="store_true", help="test the reference itself")
    options = parser.parse_args()
    if options.self_check:
        return 0 if self_check(options.seed) else 1
    if not options.vulpes:
        parser.error("--vulpes is needed")
    with tempfile.TemporaryDirectory(prefix="vulpes-step-") as folder:
        return 0 if (mutate if options.mutate else run_cases)(options, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
