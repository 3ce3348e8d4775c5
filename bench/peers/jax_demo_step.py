#!/usr/bin/env python3
"""The `demo` training step in JAX on the host: what the step costs when XLA compiles it. Prints JSON.

    scripts/python-deps && .deps/venv/bin/python bench/peers/jax_demo_step.py [--steps 200] [--repetitions 9]
    .deps/venv/bin/python bench/peers/jax_demo_step.py --check     # its loss and gradient against tests/reference

The work is that of `vulpes train` in its C51 phase with the settings of the demonstration: batch 256, S 40, H 128 / 64,
one block, Hh 64, Z 51, branches 9 / 3 / 3, a prioritised replay of 131,072 rows; sampling, three forward passes, double
DQN target (mean), loss and gradient, clip, AdamW, Polyak average, priorities: one jitted function, its buffers donated.
Rows are gathered from stored states (Vulpes gathers features by index and derives rewards: more work).

Each choice below was timed against its alternatives on the host named in docs/measurements; --variant runs the others:
  - replay: a sum tree of fan-out 64 (draws and updates touch 3 x 256 rows of 64) instead of a cumulative sum over all
    priorities (`cumsum`);
  - projection: it is linear in p, so for target = mean the three branches' p(a*) are averaged first and projected once,
    by a triangular kernel (`scatter`: by indexed additions);
  - online(s) and online(s') as two passes (`joint`: one pass over both, gradient of half of it);
  - parameters as one vector (`tree`: a tensor each), with barriers that keep XLA from computing moments twice;
  - logits as [atom, action, row], weighted sums over actions instead of gathers (against [row, action, atom]: loss and
    gradient 3.5 ms instead of 5.2).
XLA flags tried without a gain (set XLA_FLAGS to repeat): --xla_cpu_enable_fast_math=true, --xla_cpu_use_onednn=true,
--xla_cpu_prefer_vector_width=512, --xla_cpu_multi_thread_eigen=false. Time it on a quiet host: busy cores double it.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

B, S, H1, H2, HH, Z = 256, 40, 128, 64, 64, 51
ACTIONS = (9, 3, 3)
FIRST = (0, 9, 12)
ROWS = 131072
FAN = 64
VMIN, VMAX = -5.0, 5.0
GAMMA, ALPHA, PRIORITY_EPSILON = 0.95, 0.5, 1e-3
RATE, BETA1, BETA2, EPSILON, DECAY, CLIP, TAU = 1e-3, 0.9, 0.999, 1e-5, 0.01, 10.0, 0.01
VARIANTS = ("best", "cumsum", "scatter", "joint", "tree")

ATOMS = np.linspace(VMIN, VMAX, Z).astype(np.float32)
SPACING = np.float32((VMAX - VMIN) / (Z - 1))


def initial_parameters(rng):
    def weight(rows, columns):
        return rng.normal(0, np.sqrt(2 / columns), (columns, rows)).astype(np.float32)

    def bias(n):
        return np.zeros(n, np.float32)

    return {
        "trunk0": (weight(H1, S), bias(H1)),
        "trunk1": (weight(H2, H1), bias(H2)),
        "block0": (weight(H2, H2), bias(H2)),
        "hidden": (weight(4 * HH, H2), bias(4 * HH)),
        "output": ([weight(n * Z, HH) for n in (1, *ACTIONS)], [bias(n * Z) for n in (1, *ACTIONS)]),
    }


def logits(p, x):
    """Raw outputs of every head, [Z, A, B] each (value: A = 1)."""
    relu = jax.nn.relu

    def linear(x, layer):
        return x @ layer[0] + layer[1]

    h = relu(linear(x, p["trunk0"]))
    h = relu(linear(h, p["trunk1"]))
    h = h + relu(linear(h, p["block0"]))
    # Transposed from here on, atoms first: XLA vectorises reductions over atoms only along neighbouring rows, and sums
    # over atoms become a small matrix product.
    weights, bias = p["hidden"]
    hidden = relu(weights.T @ h.T + bias[:, None])
    weights, biases = p["output"]
    return [
        (weights[i].T @ hidden[i * HH : (i + 1) * HH] + biases[i][:, None]).reshape(Z, n, -1)
        for i, n in enumerate((1, *ACTIONS))
    ]


def chosen(raw, actions):
    """Logits of one action of each branch, [Z, B] each: V + A[a] - mean A as one weighted sum over actions."""
    result = []
    for advantage, a in zip(raw[1:], actions):
        n = advantage.shape[1]
        share = (a == jnp.arange(n)[:, None]) - np.float32(1 / n)
        result.append(raw[0][:, 0] + jnp.sum(share * advantage, axis=1))
    return result


def greedy(raw):
    """argmax_a Q of each branch, [B] each."""
    result = []
    for advantage in raw[1:]:
        l = raw[0] + advantage - advantage.mean(axis=1, keepdims=True)
        e = jnp.exp(l - l.max(axis=0)).reshape(Z, -1)
        total, mean = (np.stack([np.ones_like(ATOMS), ATOMS]) @ e).reshape(2, *advantage.shape[1:])
        result.append(jnp.argmax(mean / total, axis=0))
    return result


def project(p, rewards, discounts, variant):
    """Distribution of rewards + discounts * z under p [Z, B]."""
    position = (jnp.clip(rewards + discounts * ATOMS[:, None], VMIN, VMAX) - VMIN) / SPACING
    if variant == "scatter":
        lower = jnp.clip(position.astype(jnp.int32), 0, Z - 2)
        upper_share = p * (position - lower)
        row = jnp.arange(p.shape[1])
        return jnp.zeros_like(p).at[lower, row].add(p - upper_share).at[lower + 1, row].add(upper_share)
    atom = jnp.arange(Z, dtype=jnp.float32)[:, None]
    add = lambda i, m: m + p[i] * jnp.maximum(0.0, 1.0 - jnp.abs(position[i] - atom))
    return jax.lax.fori_loop(0, Z, add, jnp.zeros_like(p))


def make_target(next_raw, target, batch, variant):
    """Target distribution [Z, B]: mean over branches."""
    p = sum(jax.nn.softmax(l, axis=0) for l in chosen(logits(target, batch["next_states"]), greedy(next_raw))) / 3
    return project(p, batch["rewards"], batch["discounts"], variant)


def cross_entropy_loss(raw, m, batch):
    """(1/B) sum w (cross entropy, mean over branches), and the rows of it."""
    log_p = sum(jax.nn.log_softmax(l, axis=0) for l in chosen(raw, batch["actions"].T))
    rows = -jnp.sum(m * log_p, axis=0) / 3
    return jnp.mean(batch["weights"] * rows), rows


def loss_and_gradient(online, target, batch, variant, unravel):
    """Total, cross entropy of each row, m, and the gradient."""
    if variant == "joint":

        def objective(p):
            both = logits(unravel(p), jnp.concatenate([batch["states"], batch["next_states"]]))
            m = jax.lax.stop_gradient(make_target([l[..., B:] for l in both], unravel(target), batch, variant))
            total, rows = cross_entropy_loss([l[..., :B] for l in both], m, batch)
            return total, (rows, m)

        (total, (rows, m)), gradient = jax.value_and_grad(objective, has_aux=True)(online)
        return total, rows, m, gradient

    m = make_target(logits(unravel(online), batch["next_states"]), unravel(target), batch, variant)
    objective = lambda p: cross_entropy_loss(logits(unravel(p), batch["states"]), m, batch)
    (total, rows), gradient = jax.value_and_grad(objective, has_aux=True)(online)
    return total, rows, m, gradient


def build_tree(leaves):
    tree = [leaves]
    while tree[-1].size > FAN:
        tree.append(tree[-1].reshape(-1, FAN).sum(axis=1))
    return tree


def draw(tree, key, variant):
    """Stratified draws in proportion to the leaves."""
    u = (jnp.arange(B) + jax.random.uniform(key, (B,))) / B
    if variant == "cumsum":
        sums = jnp.cumsum(tree[0])
        return jnp.minimum(jnp.searchsorted(sums, u * sums[-1], side="right"), ROWS - 1)
    node, rest = jnp.zeros(B, jnp.int32), u * tree[-1].sum()
    triangle = np.triu(np.ones((FAN, FAN), np.float32))
    for level in reversed(tree):
        children = level.reshape(-1, min(FAN, level.size))[node]
        sums = children @ triangle[: children.shape[1], : children.shape[1]]
        child = jnp.minimum(jnp.sum(sums <= rest[:, None], axis=1), children.shape[1] - 1)
        before = jnp.take_along_axis(sums - children, child[:, None], axis=1)[:, 0]
        node, rest = node * children.shape[1] + child, rest - before
    return node


def update(tree, rows, priorities, variant):
    tree = [tree[0].at[rows].set(priorities), *tree[1:]]
    if variant == "cumsum":
        return tree
    for k in range(1, len(tree)):
        rows = rows // FAN
        tree[k] = tree[k].at[rows].set(tree[k - 1].reshape(-1, FAN)[rows].sum(axis=1))
    return tree


def train_step(state, replay, decay, variant, unravel):
    key, t = jax.random.fold_in(state["key"], state["t"]), state["t"] + 1
    rows = draw(state["tree"], key, variant)
    batch = {name: column[rows] for name, column in replay.items()}
    p = state["tree"][0][rows]
    beta = 0.4 + 0.6 * jnp.minimum(1.0, t / 12000.0)
    batch["weights"] = (p.min() / p) ** beta

    total, cross_entropy, m, gradient = loss_and_gradient(state["online"], state["target"], batch, variant, unravel)

    tensors = jax.tree.leaves(gradient)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in tensors))
    clip = jnp.minimum(1.0, CLIP / norm)
    rate = RATE * jnp.minimum(1.0, t / 200.0)
    # Bias corrections as two scalars keep the element's work to one division and one root.
    first_scale, second_scale = rate / (1 - BETA1**t), 1 / (1 - BETA2**t)

    def adamw(p, g, m, v, target, decay):
        g = clip * g
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        m, v = jax.lax.optimization_barrier((m, v))  # else XLA computes them once more for p, and p for the target
        p = jax.lax.optimization_barrier(
            p - first_scale * m / (jnp.sqrt(v * second_scale) + EPSILON) - rate * decay * p
        )
        return p, m, v, (1 - TAU) * target + TAU * p

    updated = jax.tree.map(adamw, state["online"], gradient, state["first"], state["second"], state["target"], decay)
    online, first, second, target = (
        (
            jax.tree.map(lambda x: x[i], updated, is_leaf=lambda x: isinstance(x, tuple) and len(x) == 4)
            for i in range(4)
        )
        if variant == "tree"
        else updated
    )

    entropy = -jnp.sum(jax.scipy.special.xlogy(m, m), axis=0)
    delta = jnp.maximum(cross_entropy - entropy, 0.0)
    tree = update(state["tree"], rows, (delta + PRIORITY_EPSILON) ** ALPHA, variant)
    return {
        "online": online,
        "target": target,
        "first": first,
        "second": second,
        "tree": tree,
        "key": state["key"],
        "t": t,
    }, {"loss": total, "norm": norm, "delta": delta.mean()}


def make_replay(rng):
    discounts = np.where(rng.random(ROWS) < 0.01, 0, GAMMA).astype(np.float32)
    return {
        "states": rng.normal(0, 1, (ROWS, S)).astype(np.float32),
        "next_states": rng.normal(0, 1, (ROWS, S)).astype(np.float32),
        "actions": np.stack([rng.integers(0, a, ROWS) for a in ACTIONS], axis=1).astype(np.int32),
        "rewards": rng.normal(0, 0.45, ROWS).astype(np.float32),
        "discounts": discounts,
    }


def start(variant, seed=1):
    """The jitted step, its state and the replay."""
    rng = np.random.default_rng(seed)
    parameters = initial_parameters(rng)
    decay = jax.tree.map(lambda p: np.full(p.shape, DECAY if p.ndim == 2 else 0.0, np.float32), parameters)
    unravel = lambda p: p
    if variant != "tree":
        parameters, unravel = ravel_pytree(parameters)
        decay, _ = ravel_pytree(decay)
    fresh = lambda: jax.tree.map(lambda x: jnp.array(x, copy=True), parameters)
    zeros = lambda: jax.tree.map(jnp.zeros_like, parameters)
    state = {
        "online": fresh(),
        "target": fresh(),
        "first": zeros(),
        "second": zeros(),
        "tree": build_tree(jnp.asarray(rng.uniform(0.1, 1, ROWS), jnp.float32)),
        "key": jax.random.key(seed),
        "t": jnp.int32(0),
    }
    replay = jax.tree.map(jnp.asarray, make_replay(rng))
    step = jax.jit(functools.partial(train_step, variant=variant, unravel=unravel), donate_argnums=0)
    decay = jax.tree.map(jnp.asarray, decay)
    return (lambda state, replay: step(state, replay, decay)), state, replay


def measure(variants, steps, repetitions):
    """Milliseconds a step of every variant, repetitions interleaved."""
    programs = {}
    for variant in variants:
        step, state, replay = start(variant)
        for _ in range(20):
            state, record = step(state, replay)
        programs[variant] = [step, jax.block_until_ready(state), replay]
    times = {variant: [] for variant in variants}
    for _ in range(repetitions):
        for variant, program in programs.items():
            step, state, replay = program
            begin = time.perf_counter()
            for _ in range(steps):
                state, record = step(state, replay)
            jax.block_until_ready((state, record))
            times[variant].append((time.perf_counter() - begin) / steps * 1e3)
            program[1] = state
            if not np.isfinite(float(record["loss"])):
                raise RuntimeError(f"{variant}: the loss is {record['loss']}")
    return times


def check():
    """Loss and gradient of one batch against the float64 reference."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "reference"))
    import reference

    rng = np.random.default_rng(3)
    online, target = initial_parameters(rng), initial_parameters(rng)
    batch = {k: v[:B] for k, v in make_replay(rng).items()}
    batch["weights"] = rng.uniform(0.1, 1, B).astype(np.float32)

    def action_major(rows):
        return rows.reshape(Z, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    def named(p):
        heads = reference.HEADS
        tensors = {}
        for mine, theirs in (("trunk0", "trunk.0"), ("trunk1", "trunk.1"), ("block0", "block.0")):
            tensors |= {f"{theirs}.weight": p[mine][0].T, f"{theirs}.bias": p[mine][1]}
        for i, head in enumerate(heads):
            tensors[f"hidden.{head}.weight"] = p["hidden"][0].T[i * HH : (i + 1) * HH]
            tensors[f"output.{head}.weight"] = action_major(p["output"][0][i].T)
        return tensors | {
            "hidden.bias": p["hidden"][1],
            "output.bias": np.concatenate([action_major(b) for b in p["output"][1]]),
        }

    wide = lambda tree: {k: np.asarray(v, np.float64) for k, v in tree.items()}
    options = {"double_dqn": jnp.asarray(True), "mean": jnp.asarray(True), "next_action": jnp.full((B, 3), -1)}
    right, right_gradient = reference.loss_and_gradient(
        wide(named(online)),
        wide(named(target)),
        {**wide(batch), "actions": batch["actions"]},
        np.array([VMIN, VMAX]),
        1.0,
        options,
        atoms=Z,
    )
    for variant in ("best", "scatter", "joint"):
        total, rows, m, gradient = jax.jit(functools.partial(loss_and_gradient, variant=variant, unravel=lambda p: p))(
            online, target, batch
        )
        gradient = named(jax.tree.map(np.asarray, gradient))
        worst = max(np.abs(gradient[k] - g).max() / np.abs(g).max() for k, g in right_gradient.items())
        error = abs(float(total) / float(right["loss/total"]) - 1)
        print(
            f"{variant}: loss {error:.1e}, target {np.abs(m.T - right['target'][:, 0]).max():.1e}, gradient {worst:.1e}"
        )
        if not (error < 1e-5 and worst < 1e-5):
            return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps a repetition")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="default: best; several are interleaved")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return check()
    times = measure(options.variant or ["best"], options.steps, options.repetitions)
    print(
        json.dumps(
            {
                "name": "jax_demo_step",
                "batch": B,
                "steps": options.steps,
                "repetitions": options.repetitions,
                "unit": "ms a step",
                "jax": jax.__version__,
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "xla_flags": os.environ.get("XLA_FLAGS", ""),
                "load": os.getloadavg()[0],
                "variants": {
                    v: {"median": round(statistics.median(t), 4), "best": round(min(t), 4)} for v, t in times.items()
                },
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
