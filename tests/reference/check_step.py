#!/usr/bin/env python3
"""Compares `vulpes step` with the float64 reference on random networks, settings and batches.

    check_step.py --vulpes build/host/bin/vulpes                 20 random cases, a table of the largest errors
    check_step.py --vulpes build/host/bin/vulpes --mutate        negative control: every planted fault must be reported
    check_step.py --self-check                                   the reference against differences and closed forms

Exit status: 0 all agree, 1 a difference (or a fault that went unseen), 77 Python packages are missing.
"""

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

# Small arrays, one compilation a shape: optimising passes and threads cost more than they give.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

try:
    import h5py
    import numpy as np

    import reference
    from reference import ACTIONS, Settings, Shape
except ImportError as missing:
    print(f"skipped: {missing} (scripts/python-deps installs it)")
    sys.exit(77)

CASES_A_SHAPE = 4  # a new shape costs a compilation
TIE = 1e-5  # best actions whose values are closer than this may be chosen differently in float32

# Group of datasets -> (how its error is measured, largest allowed).
#   largest: |difference| / largest |element| of the dataset   absolute: |difference|
#   rate: |difference| less one rounding of the value, over the learning rate
#   support: |difference| / (vmax - vmin)
#   position: |difference| / max(Z - 1, 8); a particle's position is a float32 of that size, and its mass is split by it
TOLERANCES = {
    "logits": ("largest", 1e-5),
    "q": ("support", 5e-6),
    "next_action": ("absolute", 0),
    "target": ("position", 1.5 * 2.0**-23),
    "target mass": ("absolute", 1e-6),
    "clipped": ("absolute", 3e-6),
    "loss": ("largest", 1e-5),
    "kl": ("largest", 3e-5),  # a difference of two float32 sums, and so is delta
    "delta": ("largest", 3e-5),
    "logit_gradient": ("largest", 1e-5),
    "gradient": ("largest", 1e-5),
    "gradient_norm": ("largest", 1e-5),
    "clip": ("largest", 1e-5),
    "spectral": ("largest", 1e-5),
    "first moment": ("largest", 1e-5),
    "second moment": ("largest", 3e-5),  # squares; and 1 - beta2 of a float32 beta2 is 1.3e-5 off
    "parameters": ("rate", 1e-3),
    "counters": ("absolute", 0),
    "skipped": ("absolute", 0),
}
POISONS = ("NaN reward", "Inf parameter", "NaN state")
NOT_WRITTEN = ("gap", "margin")


# --- Cases -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Case:
    name: str
    shape: Shape
    settings: Settings
    state: dict  # the datasets of IN.h5 but `config` and `state_width`


def random_shape(rng, index):
    """The demonstration network first, then random ones; and a batch."""
    if index == 0:
        return Shape(40, 128, 64, 1, 64, 51), 64
    width = lambda most: 8 * int(rng.integers(1, most // 8 + 1))
    shape = Shape(width(64), width(96), width(48), index % 3, width(48), [2, 11, 21, 51, 101][int(rng.integers(5))])
    return shape, 16 * int(rng.integers(1, 5))


def random_parameters(rng, shape, gain):
    """He-normal weights; `gain` widens the outputs, so that distributions differ."""
    p = {}
    for name, dims in shape.tensors().items():
        if name.endswith("bias"):
            p[name] = rng.normal(0, 0.2, dims)
        else:
            p[name] = rng.normal(0, np.sqrt(2.0 / dims[1]), dims) * (gain if name.startswith("output.") else 1.0)
    return p


def float32(tensors, prefix):
    return {prefix + k: np.asarray(v, np.float32) for k, v in tensors.items()}


def random_batch(rng, shape, rows, vmin, vmax):
    """Rewards within and beyond the support; terminal rows, some of them exactly on an atom."""
    spacing = (vmax - vmin) / (shape.atoms - 1)
    rewards = rng.normal(0.5 * (vmin + vmax), 0.4 * (vmax - vmin), rows)
    discounts = rng.choice([0.95, 0.95**3, 0.5, 1.0], rows)
    terminal = rng.random(rows) < 0.2
    discounts[terminal] = 0
    on_atom = terminal & (rng.random(rows) < 0.5)
    rewards[on_atom] = vmin + spacing * rng.integers(0, shape.atoms, on_atom.sum())
    rewards[0], rewards[1] = vmax + 3, vmin - 3
    return {
        "batch/states": rng.normal(0, 1, (rows, shape.state)).astype(np.float32),
        "batch/next_states": rng.normal(0, 1, (rows, shape.state)).astype(np.float32),
        "batch/actions": np.stack([rng.integers(0, a, rows) for a in ACTIONS], axis=1).astype(np.uint8),
        "batch/rewards": rewards.astype(np.float32),
        "batch/discounts": discounts.astype(np.float32),
        "batch/weights": rng.uniform(0.05, 1, rows).astype(np.float32),
    }


def make_case(seed, index):
    """Case `index` of a seed. Switches cycle with coprime periods so that few cases meet many combinations."""
    shape, rows = random_shape(np.random.default_rng([seed, 0, index // CASES_A_SHAPE]), index // CASES_A_SHAPE)
    rng = np.random.default_rng([seed, 1, index])
    pick = lambda values: values[int(rng.integers(len(values)))]
    phase = ("warm-up", "blend", "c51", "at once")[index % 4]
    warmup, blend = int(rng.integers(10, 50)), int(rng.integers(10, 50))
    iteration = {
        "warm-up": warmup - 1,
        "blend": warmup + int(rng.integers(1, blend)),
        "c51": warmup + blend + 3,
        "at once": warmup,
    }[phase]
    fresh = index % 7 == 3
    settings = Settings(
        double_dqn=index % 3 != 1,
        target=("mean", "per_branch")[(index // 2) % 2],
        warmup_steps=warmup,
        blend_steps=0 if phase == "at once" else blend,
        learning_rate=pick([1e-3, 3e-3, 1e-2]),
        final_fraction=pick([0.1, 0.5, 1.0]),
        ramp_steps=pick([0, 5, iteration + 1, iteration + 7]),
        beta1=0.9,
        beta2=pick([0.99, 0.999]),
        epsilon=1e-2 if fresh else pick([1e-5, 1e-4]),
        weight_decay=(0.0, 0.1, 0.01)[index % 3],
        clip_norm=1e30,
        tau=pick([0.01, 0.1]),
        spectral_trunk=(0.0, 1.2, 3.0)[(index // 2) % 3],
        spectral_output=(0.0, 0.8, 5.0)[(index // 3) % 3],
        steps=iteration + int(rng.integers(5, 60)),
    )
    half = pick([1.0, 5.0])
    vmin, vmax = -half, pick([0.5 * half, half, 2 * half])
    online = random_parameters(rng, shape, gain=pick([1.0, 3.0]))
    target = {k: v + 0.1 * rng.normal(0, np.abs(v).mean(), v.shape) for k, v in online.items()}
    state = float32(online, "parameters/online/") | float32(target, "parameters/target/")
    state |= {
        "counters/iteration": np.uint64(iteration),
        "counters/adam_t": np.uint64(0 if fresh else rng.integers(1, 200)),
    }
    state |= {"support/vmin": np.float64(vmin), "support/vmax": np.float64(vmax)}
    state |= random_batch(rng, shape, rows, vmin, vmax)
    if index % 2:
        for name, w in online.items():
            if settings.bound(name):
                u, v = reference.start_vectors(w, 1 + index % 3)
                state[f"spectral/u/{name}"] = (u * pick([0.5, 1.0, 20.0])).astype(np.float32)
                state[f"spectral/v/{name}"] = v.astype(np.float32)
    keep_from_kinks(rng, state, settings)

    # Moments and the clip norm are set to the gradient's own scale.
    _, gradient = reference.evaluate(state, settings)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
    scale = {k: 1e-3 * norm / np.sqrt(g.size) + np.sqrt(np.mean(g**2)) for k, g in gradient.items()}
    settings = dataclasses.replace(settings, clip_norm=float(norm * pick([0.2, 0.9, 4.0])))
    state |= float32(
        {k: (not fresh) * s * rng.normal(0, 1, gradient[k].shape) for k, s in scale.items()}, "optimiser/first_moment/"
    )
    state |= float32(
        {k: (not fresh) * s**2 * rng.uniform(0.2, 4, gradient[k].shape) for k, s in scale.items()},
        "optimiser/second_moment/",
    )
    widths = f"{shape.state}-{shape.hidden1}-{shape.hidden2}x{shape.blocks}-{shape.head_hidden}-{shape.atoms}"
    name = f"{index:2d} {phase:8s} B {rows:2d}, {widths}"
    return Case(name, shape, settings, state)


def keep_from_kinks(rng, state, settings):
    """Draws states anew whose ReLU arguments are within float32 rounding of 0, where the gradient jumps."""
    for _ in range(50):
        margin = reference.evaluate(state, settings)[0]["margin"]
        close = margin < 1e-5
        if not close.any():
            return
        shape = state["batch/states"][close].shape
        state["batch/states"][close] = rng.normal(0, 1, shape).astype(np.float32)
    raise RuntimeError("no states away from the ReLUs' kinks")


def poisoned(case, kind):
    """The case with one value that must make the step be skipped."""
    state = {k: np.array(v) for k, v in case.state.items()}
    if kind == "NaN reward":
        state["batch/rewards"][5] = np.nan
    elif kind == "Inf parameter":
        state["parameters/online/output.order.weight"][1, 2] = np.inf
    elif kind == "NaN state":
        state["batch/states"][3, 1] = np.nan
    return Case(f"{kind}", case.shape, case.settings, state)


# --- Files -----------------------------------------------------------------------------------------------------------


def toml(case):
    s, n = case.settings, case.shape
    text = lambda v: str(v).lower() if isinstance(v, bool) else f'"{v}"' if isinstance(v, str) else repr(v)
    sections = {
        "network": {
            "hidden1": n.hidden1,
            "hidden2": n.hidden2,
            "residual_blocks": n.blocks,
            "head_hidden": n.head_hidden,
            "atoms": n.atoms,
        },
        **{section: {k: getattr(s, k) for k in names} for section, names in reference.SECTIONS.items()},
    }
    return (
        "\n".join(
            f"[{name}]\n" + "\n".join(f"{k} = {text(v)}" for k, v in values.items())
            for name, values in sections.items()
        )
        + "\n"
    )


def write_state(path, case):
    with h5py.File(path, "w") as f:
        f["config"] = np.bytes_(toml(case))  # of fixed length
        f["state_width"] = np.int64(case.shape.state)
        for name, value in case.state.items():
            f[name] = value


def read_result(path):
    """Name -> array of every dataset."""
    out = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda name, item: out.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
    return out


def run_vulpes(program, folder, case):
    state, out = pathlib.Path(folder, "in.h5"), pathlib.Path(folder, "out.h5")
    write_state(state, case)
    done = subprocess.run([program, "step", "--state", state, "--out", out], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"vulpes step left with status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return read_result(out)


# --- Comparison ------------------------------------------------------------------------------------------------------


def group_of(name):
    group = name.split("/")[0]
    if name == "loss/kl":
        return "kl"
    return name.split("/")[1].replace("_", " ") if group == "optimiser" else group


def error_of(case, name, seen, right):
    """The error of a dataset in the measure of its group; infinite where shapes differ or only one is finite."""
    seen, right = np.asarray(seen, np.float64).reshape(-1), np.asarray(right, np.float64).reshape(-1)
    if seen.shape != right.shape:
        return np.inf
    difference = np.abs(seen - right)
    if not np.all(np.isfinite(difference)):
        return np.inf
    measure, _ = TOLERANCES[group_of(name)]
    if measure == "largest":
        largest = np.max(np.abs(right))
        return difference.max() / largest if largest > 0 else difference.max()
    if measure == "position":
        return difference.max() / max(case.shape.atoms - 1, 8)
    if measure == "support":
        return difference.max() / (case.state["support/vmax"] - case.state["support/vmin"])
    if measure == "rate":
        rate = case.settings.rate(int(case.state["counters/iteration"]))
        return np.maximum(0, difference - np.finfo(np.float32).eps * np.abs(right)).max() / rate
    return difference.max()


def expected(case, seen):
    """The reference's result, with the program's own choice of actions where two are as good; and their number."""
    right = reference.step(case.state, case.settings)
    tied = right["gap"] < TIE
    if tied.any():
        choices = np.where(tied, np.asarray(seen["next_action"], np.int64), -1)
        right = reference.step(case.state, case.settings, next_action=choices)
    return right, int(tied.any(axis=1).sum())


def compare(case, seen, right):
    """Group -> (worst error, dataset); a missing or unknown dataset has an infinite error."""
    worst = {}
    if "target" in right and "target" in seen:
        seen, right = ({**x, "target mass": np.sum(x["target"], axis=-1, dtype=np.float64)} for x in (seen, right))
    for name, value in right.items():
        if name in NOT_WRITTEN:
            continue
        error = error_of(case, name, seen[name], value) if name in seen else np.inf
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
        online, _ = reference.project_weights(case.state, case.settings)
    right |= {f"parameters/online/{k}": v for k, v in online.items() if np.all(np.isfinite(v))}
    right |= {
        "counters/iteration": case.state["counters/iteration"] + np.uint64(1),
        "counters/adam_t": case.state["counters/adam_t"],
        "skipped": True,
    }
    return compare(case, seen, right), 0


# --- Negative control ------------------------------------------------------------------------------------------------


def faulty_results(seen, weights):
    """Results with one plausible fault each, as (name, result)."""

    def changed(name, value):
        return {**seen, name: value}

    tensor = max((k for k in seen if k.startswith("gradient/")), key=lambda k: np.abs(seen[k]).max())
    yield f"{tensor} x 1.0001", changed(tensor, seen[tensor] * np.float32(1.0001))
    bias = "gradient/output.bias"
    yield "one element of the output bias' gradient missing", changed(
        bias, np.where(np.abs(seen[bias]) == np.abs(seen[bias]).max(), 0, seen[bias])
    )
    action = seen["next_action"].copy()
    action[0, 0] = (action[0, 0] + 1) % 9
    yield "one next action", changed("next_action", action)
    target = seen["target"].copy()
    target[0] *= 1 - 1e-5
    yield "target mass lost", changed("target", target)
    norm = seen["gradient_norm"] * 1.0001
    yield "gradient norm x 1.0001", changed("gradient_norm", norm)
    yield "importance weights left out of the loss", changed("loss/total", np.mean(seen["loss/rows"] / weights))
    rows = np.roll(seen["delta"], 1)
    yield "priorities of the neighbouring rows", changed("delta", rows)
    for name in [k for k in seen if k.startswith("spectral/sigma/")][:1]:
        yield f"{name} x 1.0001", changed(name, seen[name] * 1.0001)
    yield "adam_t not advanced", changed("counters/adam_t", seen["counters/adam_t"] - 1)
    name = "parameters/online/trunk.1.bias"
    yield "one bias not updated", changed(name, np.zeros_like(seen[name]))
    yield "a missing dataset", {k: v for k, v in seen.items() if k != "parameters/target/hidden.bias"}


def faulty_references(case):
    """Cases whose reference has one plausible fault each: the program's right result must then be reported as wrong.
    Only faults that this case's settings make visible."""
    s, state, iteration = case.settings, case.state, int(case.state["counters/iteration"])
    with_settings = lambda **k: Case(case.name, case.shape, dataclasses.replace(s, **k), state)
    with_state = lambda **k: Case(
        case.name, case.shape, s, {**state, **{n.replace("__", "/"): v for n, v in k.items()}}
    )
    if s.double_dqn:
        yield "plain instead of double DQN", with_settings(double_dqn=False)
    yield "the other target aggregation", with_settings(target="mean" if s.target == "per_branch" else "per_branch")
    if iteration == s.warmup_steps - 1:
        yield "warm-up one step short", with_settings(warmup_steps=iteration, blend_steps=0)
    if 0 < s.blend(iteration) < 1:
        yield "blending one step late", with_settings(warmup_steps=s.warmup_steps + 1)
    yield "learning rate x 1.01", with_settings(learning_rate=s.learning_rate * 1.01)
    if iteration < s.ramp_steps:
        yield "ramp one step late", with_settings(ramp_steps=s.ramp_steps + 1)
    elif s.final_fraction < 1:
        yield "decline one step late", with_settings(steps=s.steps + 1, ramp_steps=s.ramp_steps + 1)
    yield "bias correction one step off", with_state(counters__adam_t=state["counters/adam_t"] + np.uint64(1))
    if s.weight_decay:
        yield "no weight decay", with_settings(weight_decay=0.0)
    yield "tau x 1.1", with_settings(tau=s.tau * 1.1)
    if reference.evaluate(state, s)[0]["clipped"].max() > 0:
        yield "support one percent wider", with_state(support__vmax=np.float64(state["support/vmax"] * 1.01))
    yield "next states swapped with states", with_state(
        batch__states=state["batch/next_states"], batch__next_states=state["batch/states"]
    )
    yield "terminal rows bootstrapped", with_state(
        batch__discounts=np.where(state["batch/discounts"] == 0, np.float32(0.95), state["batch/discounts"])
    )
    if s.spectral_trunk and s.spectral_output:
        yield "bounds of trunk and outputs exchanged", with_settings(
            spectral_trunk=s.spectral_output, spectral_output=s.spectral_trunk
        )


def negative_control(case, seen):
    """Names of the planted faults that were seen and not seen."""
    right, _ = expected(case, seen)
    caught, missed = [], []
    for name, result in faulty_results(seen, case.state["batch/weights"]):
        (caught if failures(compare(case, result, right)) else missed).append(name)
    for name, mutant in faulty_references(case):
        (caught if failures(compare(case, seen, expected(mutant, seen)[0])) else missed).append(name)
    return caught, missed


# --- Self check ------------------------------------------------------------------------------------------------------


def self_check(seed):
    """The reference's gradient against central differences of its loss, and its parts against known values."""
    bad = []

    def check(name, error, allowed):
        print(f"{name:58s} {error:9.1e}  {'' if error <= allowed else 'FAILED'}")
        if not error <= allowed:
            bad.append(name)

    for index in (1, 5, 10):
        case = make_case(seed, index)
        off = dataclasses.replace(case.settings, spectral_trunk=0.0, spectral_output=0.0)
        rng = np.random.default_rng(seed)
        case.state["counters/adam_t"] = np.uint64(0)
        result, gradient = reference.evaluate(case.state, off)
        worst = 0.0
        for name, g in gradient.items():
            key, h = f"parameters/online/{name}", 1e-6
            direction = rng.normal(0, 1, g.shape)
            direction /= np.linalg.norm(direction)
            moved = []
            for sign in (1, -1):
                # The target is held: the batch's own m comes from the unmoved network.
                online = reference.group(case.state, "parameters/online/")
                online[name] = online[name] + sign * h * direction
                moved.append(held_loss(case, off, online, result["target"]))
            numeric = (moved[0] - moved[1]) / (2 * h)
            worst = max(worst, abs(numeric - np.sum(g * direction)) / np.linalg.norm(g))
        check(f"gradient, case {index} ({case.name.split()[1]}), all tensors", worst, 1e-6)
        moved = []
        for sign in (1, -1):
            offset = sign * 1e-6 * np.sign(result["logit_gradient"])
            moved.append(
                held_loss(case, off, reference.group(case.state, "parameters/online/"), result["target"], offset)
            )
        numeric = (moved[0] - moved[1]) / 2e-6
        check(f"logit gradient, case {index}", abs(numeric / np.abs(result["logit_gradient"]).sum() - 1), 1e-6)
        check(f"target mass, case {index}", np.abs(result["target"].sum(axis=2) - 1).max(), 1e-12)

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
    check(
        "spectral norm against the singular values",
        abs(reference.power_iteration(w, u)[0] - np.linalg.norm(w, 2)),
        1e-9,
    )
    check(
        "spectral norm of 0",
        reference.power_iteration(np.zeros((3, 2)), reference.start_vectors(np.zeros((3, 2)))[0])[0],
        0,
    )
    # p = 1, g = 0, rate = decay = 0.1 -> 0.99 for a weight, 1 for a bias.
    case = make_case(seed, 2)
    case.state |= {k: np.zeros_like(v) for k, v in case.state.items() if k.startswith(("optimiser/", "batch/weights"))}
    still = dataclasses.replace(
        case.settings,
        learning_rate=0.1,
        ramp_steps=0,
        final_fraction=1.0,
        weight_decay=0.1,
        spectral_trunk=0.0,
        spectral_output=0.0,
    )
    after, before = reference.step(case.state, still), reference.group(case.state, "parameters/online/")
    for name, factor in (("hidden.order.weight", 0.99), ("hidden.bias", 1.0)):
        key = f"parameters/online/{name}"
        check(f"decoupled decay of {name}", np.abs(after[key] - factor * before[name]).max(), 1e-12)
    return not bad


def held_loss(case, settings, online, m, offset=None):
    """The loss of `online` against fixed targets m."""
    batch = reference.group(case.state, "batch/") | {"actions": np.asarray(case.state["batch/actions"], np.int32)}
    z = np.linspace(float(case.state["support/vmin"]), float(case.state["support/vmax"]), case.shape.atoms)
    blend = settings.blend(int(case.state["counters/iteration"]))
    if offset is None:
        offset = np.zeros((len(batch["rewards"]), sum(reference.HEAD_ROWS) * case.shape.atoms))
    return float(reference.loss_jit(online, offset, m, batch, z, blend))


# --- Command line ----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vulpes", metavar="PATH", help="the program under test")
    parser.add_argument("--cases", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutate", action="store_true", help="plant faults; exit 1 if one is not reported")
    parser.add_argument("--self-check", action="store_true", help="test the reference itself")
    options = parser.parse_args()
    if options.self_check:
        return 0 if self_check(options.seed) else 1
    if not options.vulpes:
        parser.error("--vulpes is needed")

    bad, ties, total = [], 0, {}
    with tempfile.TemporaryDirectory(prefix="vulpes-step-") as folder:
        if options.mutate:
            faults, unseen = 0, []
            for index in range(options.cases):
                case = make_case(options.seed, index)
                caught, missed = negative_control(case, run_vulpes(options.vulpes, folder, case))
                faults += len(caught) + len(missed)
                unseen += [f"{case.name}: {m}" for m in missed]
                print(f"{case.name:44s} {len(caught)} faults reported, {len(missed)} missed")
            for line in unseen:
                print(f"MISSED  {line}")
            print(f"{faults - len(unseen)} passed, {len(unseen)} failed")
            return 1 if unseen else 0

        cases = [(make_case(options.seed, i), compared) for i in range(options.cases)]
        cases += [(poisoned(cases[-1][0], kind), check_skip) for kind in POISONS]
        for case, check in cases:
            try:
                seen = run_vulpes(options.vulpes, folder, case)
                worst, tied = check(case, seen)
                ties += tied
                report(case, worst, total, bad)
            except RuntimeError as error:
                print(f"{case.name:44s} {error}")
                bad.append(case.name)

    print(f"\n{'datasets':16s} {'worst':>9s} {'allowed':>9s}  measure   where")
    for g, (error, name, where) in total.items():
        measure, allowed = TOLERANCES[g]
        print(f"{g:16s} {error:9.1e} {allowed:9.0e}  {measure:8s}  {name} ({where.split()[0]})")
    print(f"rows with two best actions closer than {TIE:g}: {ties}")
    count = options.cases + len(POISONS)
    print(f"{count - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


def report(case, worst, total, bad):
    wrong = failures(worst)
    for g, (error, name) in worst.items():
        if error >= total.get(g, (-1.0,))[0]:
            total[g] = (error, name, case.name)
    print(f"{case.name:44s} " + ("ok" if not wrong else "; ".join(f"{n}: {e:.1e}" for e, n in wrong.values())))
    if wrong:
        bad.append(case.name)


if __name__ == "__main__":
    sys.exit(main())
