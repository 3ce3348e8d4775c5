"""Random states, settings and batches for check_step.py: every part of the step on and off in many combinations."""

import dataclasses

import numpy as np

import reference
import replay
from reference import ACTIONS, Settings, Shape

CASES_A_SHAPE = 5  # a new shape costs a compilation
KINK = 1e-5  # a ReLU's argument closer to 0 than this may have the other sign in float32

# Parts that are on or off, with the share of random cases that have them (of those that can).
PARTS = {
    "replay": 0.7,
    "n-step": 0.6,  # with a replay, as the next four
    "bonus": 0.5,
    "hindsight": 0.6,
    "relabelled priorities": 0.7,  # with hindsight
    "inventory": 0.5,
    "double": 0.6,
    "per branch": 0.5,
    "warm-up": 0.5,
    "depth": 0.6,
    "trunk scale": 0.5,
    "spectral trunk": 0.5,
    "spectral output": 0.5,
    "cql": 0.5,
    "auxiliary": 0.5,
    "diversity": 0.5,
    "causal": 0.4,
    "decay": 0.5,
    "clip": 0.5,
    "spike bound": 0.5,
    "rollback": 0.5,
    "pruning": 0.5,
    "injected NaN": 0.5,
    "injected spike": 0.35,
}
NEEDS = {
    "n-step": "replay",
    "bonus": "replay",
    "hindsight": "replay",
    "relabelled priorities": "hindsight",
    "inventory": "replay",
}


@dataclasses.dataclass
class Case:
    name: str
    shape: Shape
    settings: Settings
    state: dict  # the datasets of IN.h5 but `config`
    on: set = dataclasses.field(default_factory=set)

    @property
    def iteration(self):
        return int(self.state["counters/iteration"])

    @property
    def drawn(self):
        return "replay/leaves" in self.state


def closed(parts):
    """The parts that can be on: without those that need another one."""
    on = set(parts)
    while True:
        bad = {p for p in on if p in NEEDS and NEEDS[p] not in on}
        if not bad:
            return on
        on -= bad


def choose_parts(rng, index):
    """Of ten cases one has every part off, one every part on (injected faults in turn), two are for the guard."""
    if index % 10 == 0:
        return set()
    if index % 10 == 5:
        return set(PARTS) - {"injected NaN"} - ({"injected spike"} if index % 20 == 5 else set())
    on = closed(p for p, share in PARTS.items() if rng.random() < share)
    if refused(index):
        on |= {"spike bound", "rollback"}
    if refused(index) or below_floor(index):
        on = (on | {"spike bound"}) - {"warm-up", "injected NaN"}
    return on


def refused(index):
    """The guard refuses these cases' update for its norm, and restores the snapshot; every other time it stops."""
    return index % 10 == 9


def below_floor(index):
    """A norm beyond the bound that the floor lets pass."""
    return index % 10 == 8


def random_shape(rng, index):
    """The demonstration network first, then small random ones; and a batch."""
    if index == 0:
        return Shape(40, 128, 64, 1, 64, 51), 64
    width = lambda most: 8 * int(rng.integers(1, most // 8 + 1))
    shape = Shape(
        8 + width(40), width(96), width(48), 1 + index % 3, width(48), [2, 11, 21, 51, 101][int(rng.integers(5))]
    )
    return shape, 16 * int(rng.integers(1, 5))


def random_parameters(rng, shape, gain):
    """He-normal weights, smaller ones within residual blocks; `gain` widens the outputs, so that distributions differ.
    Wide ones saturate: then many actions are equally good, and gradients vanish into rounding."""
    p = {}
    for name, dims in shape.tensors().items():
        if name.endswith("bias"):
            p[name] = rng.normal(0, 0.2, dims)
        else:
            by = gain if name.startswith("output.") else 0.5 if name.startswith("block.") else 1.0
            p[name] = rng.normal(0, by * np.sqrt(2.0 / dims[1]), dims)
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
    numbers = {
        "states": rng.normal(0, 1, (rows, shape.state)),
        "next_states": rng.normal(0, 1, (rows, shape.state)),
        "rewards": rewards,
        "discounts": discounts,
        "weights": rng.uniform(0.05, 1, rows),
        "next_returns": rng.normal(0, 0.01, rows),
        "exposures": rng.uniform(-1.2, 1.2, rows),
    }
    actions = np.stack([rng.integers(0, a, rows) for a in ACTIONS], axis=1).astype(np.uint8)
    return float32(numbers, "batch/") | {"batch/actions": actions}


def random_replay(rng, shape, n_step, half):
    """Accounts that live through episodes of 3 to 12 bars in a ring that is full and overwritten, or not yet full."""
    slots, envs, bars = int(rng.integers(16, 33)), int(rng.integers(3, 8)), 160
    written = slots + int(rng.integers(-4, 30))
    features = shape.state - 5 - int(rng.integers(0, 3))
    dims = {"bars_held": (2,), "before": (4,), "after": (4,), "action": (3,)}
    types = dict(
        bar="u4",
        action="u1",
        flags="u1",
        episode_offset="u2",
        bars_held="u2",
        goal="f4",
        before="f4",
        after="f4",
        leaves="u4",
    )
    ring = {name: np.zeros((slots, envs) + dims.get(name, ()), kind) for name, kind in types.items()}
    for env in range(envs):
        left = 0
        for w in range(written):
            if left == 0:
                left, offset, bar = int(rng.integers(3, 13)), 0, int(rng.integers(0, bars - 14))
                account, best, held, goal = np.zeros(4), 0.0, 0, rng.uniform(-0.02, 0.05)
            growth = account[3] + rng.normal(0, 0.01)
            best = max(best, growth)
            after = np.array([rng.uniform(-1.1, 1.1), rng.normal(0, 0.02), 1 - np.exp(growth - best), growth])
            left -= 1
            row = dict(
                bar=bar,
                action=[rng.integers(0, a) for a in ACTIONS],
                flags=0 if left else [replay.TERMINAL, replay.TRUNCATED, replay.TRUNCATED][int(rng.integers(3))],
                episode_offset=offset,
                bars_held=[held, held + 1],
                goal=goal,
                before=account,
                after=after,
            )
            for name, value in row.items():
                ring[name][w % slots, env] = value
            account, held, offset, bar = after, held + 1, offset + 1, bar + 1
    state = {f"replay/{name}": value for name, value in ring.items()}
    state["replay/slots_written"] = np.uint64(written)
    # A leaf for every row whose n-step window is closed; of very different sizes.
    view = replay.Ring(state)
    for w in range(max(0, written - slots), written):
        for env in range(envs):
            row = (w % slots) * envs + env
            ended = any(view.get("flags", r) for r in view.later(row))
            if written - w >= n_step or ended:
                ring["leaves"][w % slots, env] = int(
                    2 ** rng.uniform(0, 31) if rng.random() < 0.1 else 2 ** rng.uniform(17, 21)
                )
    close = 100 * np.exp(np.cumsum(rng.normal(0, 0.01, bars)))
    return state | {
        "market/features": rng.normal(0, 1, (bars, features)).astype(np.float32),
        "market/close": close,
        "market/reward_scale": np.float64(30.0 * half),
    }


def keep_from_kinks(rng, state, settings):
    """Draws states (of a replay: features) anew where a ReLU's argument is within float32 rounding of 0, at which the
    gradient jumps."""
    for _ in range(50):
        drawn = "replay/leaves" in state
        batch = {}
        if drawn:
            key = reference.key_of(state, settings)
            batch = replay.gather(state, settings, key, settings["train.batch"])
        close = reference.evaluate({**state, **batch}, settings)[0]["margin"] < KINK
        if not close.any():
            return
        name = "market/features" if drawn else "batch/states"
        redrawn = rng.normal(0, 1, state[name].shape).astype(np.float32)
        state[name] = redrawn if drawn else np.where(close[:, None], redrawn, state[name])
    raise RuntimeError("no states away from the ReLUs' kinks")


def random_settings(rng, on, index, iteration, rows):
    """Settings of the chosen parts; `iteration` is in the phase of the case."""
    pick = lambda values: values[int(rng.integers(len(values)))]
    s = {
        "run.seed": int(rng.integers(0, 2**32)),
        "train.batch": rows,
        "train.steps": iteration + int(rng.integers(5, 60)),
        "optimiser.learning_rate": pick([1e-3, 3e-3, 1e-2]),
        "optimiser.final_fraction": pick([0.1, 0.5, 1.0]),
        "optimiser.ramp_steps": pick([0, 5, iteration + 1, iteration + 7]),
        "optimiser.beta2": pick([0.99, 0.999]),
        "optimiser.epsilon": 1e-2 if index % 7 == 3 else pick([1e-5, 1e-4]),
        "optimiser.tau": pick([0.01, 0.1]),
        "replay.beta": pick([0.3, 0.6]),
        "replay.alpha": pick([0.5, 0.8]),
        "agent.gamma": pick([0.9, 0.97]),
        "agent.double_dqn": "double" in on,
        "agent.target": "per_branch" if "per branch" in on else "mean",
        "agent.scale_trunk_gradient": "trunk scale" in on,
        "goal.clip": pick([0.02, 0.1]),
        "auxiliary.final_fraction": pick([0.0, 0.2]) if index % 3 else 1.0,
        "auxiliary.decay_fraction": 1.0,
        "guard.norm_rate": pick([0.01, 0.2]),
    }
    options = {
        "n-step": {"agent.n_step": pick([2, 3, 5])},
        "bonus": {"reward.goal_bonus": pick([0.5, 2.0])},
        "hindsight": {"hindsight.share": pick([0.3, 0.8, 1.0]), "hindsight.horizon": pick([1, 3, 20])},
        "relabelled priorities": {"hindsight.update_priorities": True},
        "inventory": {"reward.inventory_penalty": 0.3},
        "depth": {"network.survival": pick([0.2, 0.5, 0.8])},
        "spectral trunk": {"optimiser.spectral_trunk": pick([1.2, 3.0])},
        "spectral output": {"optimiser.spectral_output": pick([0.8, 5.0])},
        "cql": {"cql.weight": pick([0.1, 1.0])},
        "auxiliary": {
            "auxiliary.weight": pick([0.1, 1.0]),
            "auxiliary.temperature": pick([0.5, 2.0]),
            "auxiliary.label_temperature": pick([0.3, 1.0]),
            "auxiliary.risk": pick([0.0, 4.0]),
        },
        "diversity": {"diversity.weight": pick([0.1, 1.0])},
        "causal": {"causal.every": pick([iteration, 1])},
        "decay": {"optimiser.weight_decay": pick([0.1, 0.01])},
        "spike bound": {"guard.spike_factor": 3.0},
        "rollback": {"guard.patience": pick([1, 3]), "guard.max_rollbacks": pick([0, 2]), "guard.snapshot_steps": 7},
        "pruning": {
            "pruning.sparsity": pick([0.3, 0.7]),
            "pruning.begin_fraction": pick([0.0, 0.1]),
            "pruning.end_fraction": pick([0.5, 1.0]),
        },
        "injected NaN": {"debug.inject": True, "inject.nan_step": iteration - 1, "inject.nan_steps": 3},
        "injected spike": {
            "debug.inject": True,
            "inject.grad_spike_step": iteration,
            "inject.grad_spike_factor": pick([50.0, 1e4]),
        },
    }
    for part in PARTS:  # in a fixed order
        if part in on:
            s |= options.get(part, {})
    return Settings(s)


def with_pruned(rng, state, share):
    """Masks of an earlier pruning, and what they cover set to 0."""
    for name in [n[len("parameters/online/") :] for n in state if n.startswith("parameters/online/")]:
        if name.endswith("weight"):
            mask = rng.random(state[f"parameters/online/{name}"].shape) < share
            state[f"mask/{name}"] = mask.astype(np.uint8)
            for prefix in reference.Parts.PREFIXES:
                state[prefix + name] = np.where(mask, np.float32(0), state[prefix + name])


def add_guard(rng, state, settings, on, norm, index):
    """The guard's memory, so that some cases are refused, rolled back or stopped."""
    pick = lambda values: values[int(rng.integers(len(values)))]
    patience = settings["guard.patience"]
    t = int(state["counters/adam_t"])
    state |= {
        "counters/norm_mean": np.float64(norm * pick([0.1, 1.0, 1.0, 0.0])),
        "counters/skipped": np.uint64(rng.integers(0, 5)),
        "counters/auxiliary_multiplier": np.float64(pick([0.5, 1.0])),
    }
    if below_floor(index) and "spike bound" in on:
        settings = settings.replace({"guard.spike_floor": float(2 * norm)})
        state["counters/norm_mean"] = np.float64(0.1 * norm)
    if "rollback" in on:
        state |= {
            "counters/skips_in_a_row": np.uint32(max(0, patience - pick([1, 1, 2]))),
            "counters/rollbacks": np.uint32(rng.integers(0, settings["guard.max_rollbacks"] + 1)),
            "counters/rate_multiplier": np.float64(pick([1.0, 0.25])),
        }
        if refused(index):
            most = settings["guard.max_rollbacks"]
            settings = settings.replace({"guard.spike_floor": 0.0, "guard.max_rollbacks": most + index % 20 // 10})
            state["counters/norm_mean"] = np.float64(0.1 * norm)
            state["counters/skips_in_a_row"] = np.uint32(patience - 1)
            state["counters/rollbacks"] = np.uint32(most)
        if rng.random() < 0.5:  # this update becomes the snapshot
            settings = settings.replace({"guard.snapshot_steps": int(pick([1, t + 1]))})
        if rng.random() < 0.6:
            state["counters/snapshot_adam_t"] = np.uint64(max(0, t - int(rng.integers(0, 9))))
            for prefix, own in zip(reference.Parts.SNAPSHOT, reference.Parts.PREFIXES):
                for name in [n for n in state if n.startswith(own)]:
                    noise = rng.normal(1, 0.1, state[name].shape)
                    state[prefix + name[len(own) :]] = (state[name] * noise).astype(np.float32)
            for name in [n for n in state if n.startswith("mask/")]:
                state[f"snapshot/{name}"] = state[name]
            for name in [n for n in state if n.startswith("spectral/")]:
                state[f"snapshot/{name}"] = (1.1 * state[name]).astype(np.float32)
    return settings


def make_case(seed, index, parts=None, title=None):
    """Case `index` of a seed; `parts`: exactly these are on."""
    shape, rows = random_shape(np.random.default_rng([seed, 0, index // CASES_A_SHAPE]), index // CASES_A_SHAPE)
    rng = np.random.default_rng([seed, 1, index])
    pick = lambda values: values[int(rng.integers(len(values)))]
    on = choose_parts(rng, index) if parts is None else set(parts)

    warmup, blend = int(rng.integers(10, 50)), int(rng.integers(10, 50))
    if "warm-up" not in on:
        warmup, blend = pick([(0, 0), (warmup, blend), (warmup, 0)])
        iteration = warmup + blend + int(rng.integers(1, 5))
    else:
        iteration = pick([warmup - 1, warmup + int(rng.integers(1, blend))])
    settings = random_settings(rng, on, index, iteration, rows)
    settings = settings.replace({"agent.warmup_steps": warmup, "agent.blend_steps": blend})

    fresh = index % 7 == 3
    half = pick([1.0, 5.0])
    vmin, vmax = -half, pick([0.5 * half, half, 2 * half])
    online = random_parameters(rng, shape, gain=pick([0.5, 1.5]) if shape.atoms > 11 else 0.5)
    target = {k: v + 0.1 * rng.normal(0, np.abs(v).mean(), v.shape) for k, v in online.items()}
    state = float32(online, "parameters/online/") | float32(target, "parameters/target/")
    state |= {
        "state_width": np.int64(shape.state),
        "fold": np.int64(rng.integers(1, 9)),
        "counters/iteration": np.uint64(iteration),
        "counters/adam_t": np.uint64(0 if fresh else rng.integers(1, 200)),
        "support/vmin": np.float64(vmin),
        "support/vmax": np.float64(vmax),
    }
    if "replay" in on:
        state |= random_replay(rng, shape, settings["agent.n_step"], half)
    else:
        state |= random_batch(rng, shape, rows, vmin, vmax)
    if "auxiliary" in on:
        state["market/return_sd"] = np.float64(0.01)
    elif "replay" not in on:
        del state["batch/next_returns"], state["batch/exposures"]
    if "causal" in on:
        groups = rng.integers(0, 4, shape.state)
        groups[:4] = range(4)
        state["causal/groups"] = groups.astype(np.int32)
    zero = {name: np.zeros(dims) for name, dims in shape.tensors().items()}
    state |= float32(zero, "optimiser/first_moment/") | float32(zero, "optimiser/second_moment/")
    masked = "pruning" in on and rng.random() < 0.6
    if masked:
        with_pruned(rng, state, 0.15)
    if index % 2:
        for name, w in reference.group(state, "parameters/online/").items():
            if settings.bound(name):
                u, v = reference.start_vectors(w, 1 + index % 3)
                state[f"spectral/u/{name}"] = (u * pick([0.5, 1.0, 20.0])).astype(np.float32)
                state[f"spectral/v/{name}"] = v.astype(np.float32)
    keep_from_kinks(rng, state, settings)

    # Moments, the clip norm and the guard's bound are set to the gradient's own scale.
    batch = {}
    if "replay" in on:
        batch = replay.gather(state, settings, reference.key_of(state, settings), rows)
    calm = settings.replace({"inject.nan_step": -1})
    _, gradient = reference.evaluate({**state, **batch}, calm)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
    scale = {k: 1e-3 * norm / np.sqrt(g.size) + np.sqrt(np.mean(g**2)) for k, g in gradient.items()}
    if "clip" in on:
        settings = settings.replace({"optimiser.clip_norm": float(norm * pick([0.2, 0.9]))})
    if (
        fresh
    ):  # a first update is g / (|g| + epsilon): rounding of elements far below the largest shows where g > epsilon
        settings = settings.replace({"optimiser.clip_norm": min(settings["optimiser.clip_norm"], 1.0)})
    else:
        first = {k: s * rng.normal(0, 1, gradient[k].shape) for k, s in scale.items()}
        second = {k: s**2 * rng.uniform(0.2, 4, gradient[k].shape) for k, s in scale.items()}
        for name in first:
            keep = 1 - state.get(f"mask/{name}", np.uint8(0))
            state[f"optimiser/first_moment/{name}"] = (keep * first[name]).astype(np.float32)
            state[f"optimiser/second_moment/{name}"] = (keep * second[name]).astype(np.float32)
    settings = add_guard(rng, state, settings, on, norm, index)
    widths = f"{shape.state}-{shape.hidden1}-{shape.hidden2}x{shape.blocks}-{shape.head_hidden}-{shape.atoms}"
    return Case(title or f"{index:2d} {len(on):2d} parts, B {rows:2d}, {widths}", shape, settings, state, on)


def poisoned(case, kind):
    """A case with a given batch, with one value that must make the step be skipped."""
    state = {k: np.array(v) for k, v in case.state.items()}
    if kind == "NaN reward":
        state["batch/rewards"][5] = np.nan
    elif kind == "Inf parameter":
        state["parameters/online/output.order.weight"][1, 2] = np.inf
    elif kind == "NaN state":
        state["batch/states"][3, 1] = np.nan
    return Case(kind, case.shape, case.settings, state, case.on)
