"""One training step in float64, written from the published equations and independent of the C++ sources.

    spectral norm      Miyato et al. 2018 (power iteration), in place, then min(1, c / sigma)
    network            Wang et al. 2016 (dueling), Tavakoli et al. 2018 (branches), residual trunk,
                       Huang et al. 2016 (stochastic depth)
    target             van Hasselt et al. 2016 (double), Bellemare et al. 2017, algorithm 1 (projection)
    loss               importance weights of Schaul et al. 2016; expected-value loss blended into C51's cross entropy;
                       Kumar et al. 2020 (conservative Q-learning); exposure label, diversity: our own
    optimiser          global norm clip, Loshchilov & Hutter 2019 (AdamW), Polyak averaging, guard,
                       Zhu & Gupta 2017 (gradual magnitude pruning)
    replay             replay.py

The loss is written out and differentiated by JAX; no backward formula appears here. A state, a batch and a result are
dictionaries whose keys are the dataset names of docs/step-format.md and whose values are NumPy arrays.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import replay

jax.config.update("jax_enable_x64", True)

BRANCHES = ("exposure", "order", "urgency")
ACTIONS = (9, 3, 3)
HEADS = ("value",) + BRANCHES
HEAD_ROWS = (1,) + ACTIONS  # output rows of a head, in units of Z
LEVELS = np.linspace(-1, 1, 9)  # of the exposure branch
GROUPS = ("trunk", "blocks", "value", "exposure", "order", "urgency", "head_biases")
FAULTS = {"none": 0, "not finite": 1, "spike": 2}


@dataclass(frozen=True)
class Shape:
    """Widths of the network: S, H1, H2, residual blocks, Hh, Z."""

    state: int
    hidden1: int
    hidden2: int
    blocks: int
    head_hidden: int
    atoms: int

    def tensors(self):
        """Name -> shape of every parameter tensor."""
        t = {
            "trunk.0.weight": (self.hidden1, self.state),
            "trunk.0.bias": (self.hidden1,),
            "trunk.1.weight": (self.hidden2, self.hidden1),
            "trunk.1.bias": (self.hidden2,),
        }
        for l in range(self.blocks):
            t[f"block.{l}.weight"] = (self.hidden2, self.hidden2)
            t[f"block.{l}.bias"] = (self.hidden2,)
        for head in HEADS:
            t[f"hidden.{head}.weight"] = (self.head_hidden, self.hidden2)
        t["hidden.bias"] = (len(HEADS) * self.head_hidden,)
        for head, rows in zip(HEADS, HEAD_ROWS):
            t[f"output.{head}.weight"] = (rows * self.atoms, self.head_hidden)
        t["output.bias"] = (sum(HEAD_ROWS) * self.atoms,)
        return t


# Settings that a step depends on, with the values at which every part is off.
PLAIN = {
    "run.seed": 1,
    "account.taker_fee_bp": 4.0,
    "account.half_spread_bp": 1.0,
    "reward.inventory_penalty": 0.0,
    "reward.goal_bonus": 0.0,
    "goal.clip": 0.1,
    "hindsight.share": 0.0,
    "hindsight.horizon": 8,
    "hindsight.update_priorities": False,
    "network.survival": 1.0,
    "agent.gamma": 0.9,
    "agent.n_step": 1,
    "agent.double_dqn": False,
    "agent.target": "mean",
    "agent.warmup_steps": 0,
    "agent.blend_steps": 0,
    "agent.scale_trunk_gradient": False,
    "cql.weight": 0.0,
    "diversity.weight": 0.0,
    "auxiliary.weight": 0.0,
    "auxiliary.final_fraction": 0.1,
    "auxiliary.decay_fraction": 0.5,
    "auxiliary.temperature": 1.0,
    "auxiliary.label_temperature": 0.5,
    "auxiliary.risk": 1.0,
    "causal.every": 0,
    "causal.rows": 16,
    "replay.alpha": 0.6,
    "replay.beta": 0.4,
    "replay.epsilon": 1e-3,
    "collect.window": 64,
    "optimiser.learning_rate": 1e-3,
    "optimiser.final_fraction": 1.0,
    "optimiser.ramp_steps": 0,
    "optimiser.beta1": 0.9,
    "optimiser.beta2": 0.999,
    "optimiser.epsilon": 1e-5,
    "optimiser.weight_decay": 0.0,
    "optimiser.clip_norm": 1e30,
    "optimiser.tau": 0.01,
    "optimiser.spectral_trunk": 0.0,
    "optimiser.spectral_output": 0.0,
    "pruning.sparsity": 0.0,
    "pruning.begin_fraction": 0.0,
    "pruning.end_fraction": 1.0,
    "pruning.every": 1,
    "guard.spike_factor": 0.0,
    "guard.spike_floor": 0.0,
    "guard.norm_rate": 0.01,
    "guard.patience": 0,
    "guard.max_rollbacks": 3,
    "guard.snapshot_steps": 1000,
    "train.steps": 100,
    "train.batch": 16,
    "debug.inject": False,
    "inject.nan_step": -1,
    "inject.nan_steps": 1,
    "inject.grad_spike_step": -1,
    "inject.grad_spike_steps": 1,
    "inject.grad_spike_factor": 1e3,
}


class Settings(dict):
    """Settings by their names in the configuration file."""

    def __init__(self, values):
        unknown = set(values) - set(PLAIN)
        if unknown:
            raise KeyError(f"settings that the reference does not know: {sorted(unknown)}")
        super().__init__({**PLAIN, **values})

    def replace(self, changes):
        return Settings({**self, **changes})

    def linear(self, name, last, steps, iteration):
        """From the setting's value at iteration 0 to `last` at iteration `steps`, constant from there."""
        progress = 1.0 if steps <= 0 else min(1.0, iteration / steps)
        return self[name] + progress * (last - self[name])

    def blend(self, iteration):
        """Share of the C51 loss."""
        warmup, steps = self["agent.warmup_steps"], self["agent.blend_steps"]
        if iteration < warmup:
            return 0.0
        return 1.0 if steps == 0 else min(1.0, (iteration - warmup) / steps)

    def rate(self, iteration):
        """Learning rate: a linear ramp that reaches the peak at iteration ramp_steps - 1, then linear from there to
        `final_fraction` of the peak at iteration `train.steps`."""
        peak, ramp = self["optimiser.learning_rate"], self["optimiser.ramp_steps"]
        if iteration < ramp:
            return peak * (iteration + 1) / ramp
        begin = max(0, ramp - 1)
        progress = min(1.0, (iteration - begin) / max(1, self["train.steps"] - begin))
        return peak * (1.0 + (self["optimiser.final_fraction"] - 1.0) * progress)

    def auxiliary_weight(self, iteration):
        """Without the multiplier."""
        weight, decay = self["auxiliary.weight"], int(self["auxiliary.decay_fraction"] * self["train.steps"])
        return self.linear("auxiliary.weight", weight * self["auxiliary.final_fraction"], decay, iteration)

    def bound(self, tensor):
        """Largest spectral norm of a tensor; 0: unbounded."""
        if tensor.endswith("bias"):
            return 0.0
        return self["optimiser.spectral_output" if tensor.startswith("output.") else "optimiser.spectral_trunk"]

    def pruning_range(self):
        return tuple(int(self[f"pruning.{end}_fraction"] * self["train.steps"]) for end in ("begin", "end"))

    def sparsity(self, iteration):
        begin, end = self.pruning_range()
        if iteration < begin:
            return 0.0
        progress = 1.0 if iteration >= end else (iteration - begin) / (end - begin)
        return self["pruning.sparsity"] * (1.0 - (1.0 - progress) ** 3)

    def prunes(self, iteration):
        """Every so many steps from the begin; for the last time at the end, or at the first such step after it."""
        begin, end = self.pruning_range()
        every = self["pruning.every"]
        due = iteration >= begin and (iteration - begin) % every == 0 and iteration - every < end
        return self["pruning.sparsity"] > 0 and due

    def measures(self, iteration):
        return self["causal.every"] > 0 and iteration % self["causal.every"] == 0

    def within(self, fault, iteration):
        """An injected fault is in effect."""
        first = self[f"inject.{fault}_step"]
        return 0 <= first <= iteration < first + self[f"inject.{fault}_steps"]


# --- Network ---------------------------------------------------------------------------------------------------------


@jax.custom_vjp
def scale_gradient(x, factor):
    """x itself; what flows back through it is multiplied."""
    return x


scale_gradient.defvjp(lambda x, factor: (x, factor), lambda factor, g: (factor * g, None))


def forward(p, x, factors=None, trunk_scale=1.0):
    """Raw head outputs [B, 16 Z] (value, then each branch's actions), all ReLU pre-activations, and the hidden
    activations of the branches' heads. `factors`: m_l / q_l of the residual blocks, 1 by default."""
    pre = [x @ p["trunk.0.weight"].T + p["trunk.0.bias"]]
    h = jax.nn.relu(pre[-1])
    pre.append(h @ p["trunk.1.weight"].T + p["trunk.1.bias"])
    h = jax.nn.relu(pre[-1])
    for l in range(sum(name.startswith("block.") and name.endswith("weight") for name in p)):
        pre.append(h @ p[f"block.{l}.weight"].T + p[f"block.{l}.bias"])
        h = h + (1.0 if factors is None else factors[l]) * jax.nn.relu(pre[-1])
    h = scale_gradient(h, trunk_scale)
    outputs, hidden = [], []
    for head, bias in zip(HEADS, jnp.split(p["hidden.bias"], len(HEADS))):
        pre.append(h @ p[f"hidden.{head}.weight"].T + bias)
        hidden.append(jax.nn.relu(pre[-1]))
        outputs.append(hidden[-1] @ p[f"output.{head}.weight"].T)
    return jnp.concatenate(outputs, axis=1) + p["output.bias"], pre, hidden[1:]


def log_probabilities(outputs, atoms):
    """Dueling combination and log-softmax: one array [B, A_d, Z] a branch."""
    b = outputs.shape[0]
    value = outputs[:, :atoms].reshape(b, 1, atoms)
    result, begin = [], atoms
    for actions in ACTIONS:
        advantage = outputs[:, begin : begin + actions * atoms].reshape(b, actions, atoms)
        begin += actions * atoms
        result.append(jax.nn.log_softmax(value + advantage - advantage.mean(axis=1, keepdims=True), axis=2))
    return result


def action_values(log_p, z):
    """Q_d(a) of every branch, [B, A_d] each."""
    return [jnp.exp(l) @ z for l in log_p]


def at(table, index):
    """table[b, index[b], ...]."""
    return table[jnp.arange(table.shape[0]), index]


def atoms_of(support, count):
    return support[0] + (support[1] - support[0]) * jnp.arange(count) / (count - 1)


def project(p, rewards, discounts, z):
    """Distribution of rewards + discounts * z under p [B, Z], on the atoms z: each particle is shared by its two
    neighbours in proportion to closeness, which is a triangular kernel of one spacing's width."""
    spacing = (z[-1] - z[0]) / (z.shape[0] - 1)
    unclipped = rewards[:, None] + discounts[:, None] * z[None, :]
    position = (jnp.clip(unclipped, z[0], z[-1]) - z[0]) / spacing
    kernel = jnp.maximum(0.0, 1.0 - jnp.abs(position[:, :, None] - jnp.arange(z.shape[0])))
    outside = (unclipped < z[0]) | (unclipped > z[-1])
    return jnp.einsum("bi,bij->bj", p, kernel), jnp.sum(p * outside, axis=1)


# --- Loss ------------------------------------------------------------------------------------------------------------


def make_target(online, target, batch, z, options):
    """Target distributions m [B, 3, Z] and what led to them."""
    atoms = z.shape[0]
    online_next = forward(online, batch["next_states"])[0]
    target_next = forward(target, batch["next_states"])[0]
    online_q = action_values(log_probabilities(online_next, atoms), z)
    target_p = [jnp.exp(l) for l in log_probabilities(target_next, atoms)]
    next_q = [jnp.where(options["double_dqn"], q, p @ z) for q, p in zip(online_q, target_p)]
    gap, chosen = [], []
    for d, q in enumerate(next_q):
        best = jnp.sort(q, axis=1)
        gap.append(best[:, -1] - best[:, -2])
        own = jnp.argmax(q, axis=1)
        chosen.append(jnp.where(options["next_action"][:, d] >= 0, options["next_action"][:, d], own))
    projected = [project(at(p, a), batch["rewards"], batch["discounts"], z) for p, a in zip(target_p, chosen)]
    m = jnp.stack([x[0] for x in projected], axis=1)
    m = jnp.where(options["mean"], jnp.broadcast_to(m.mean(axis=1, keepdims=True), m.shape), m)
    return {
        "logits/online_next": online_next,
        "logits/target_next": target_next,
        "q/next": jnp.concatenate(next_q, axis=1),
        "next_action": jnp.stack(chosen, axis=1),
        "gap": jnp.stack(gap, axis=1),
        "target": m,
        "clipped": jnp.stack([x[1] for x in projected], axis=1).mean(axis=1),
    }


def exposure_label(batch, w):
    """Soft label [B, 9]: what a level would have earned in the next bar, after costs and risk, as a Boltzmann
    distribution."""
    e = LEVELS[None, :]
    gain = e * batch["next_returns"][:, None] - w["cost"] * jnp.abs(e - batch["exposures"][:, None])
    return jax.nn.softmax(
        (gain - 0.5 * w["risk"] * jnp.square(e * w["sd"])) / (w["label_temperature"] * w["sd"]), axis=1
    )


def squared_cosines(hidden):
    """Mean over pairs of branches of cos^2 of their activations, [B]; norms are at least 1e-6."""
    square = [jnp.maximum(jnp.sum(jnp.square(h), axis=1), 1e-12) for h in hidden]
    pairs = [(d, e) for d in range(len(hidden)) for e in range(d)]
    return sum(jnp.square(jnp.sum(hidden[d] * hidden[e], axis=1)) / (square[d] * square[e]) for d, e in pairs) / len(
        pairs
    )


def loss(online, logit_offset, m, batch, z, w):
    """What the gradient is taken of, and what led to it. `logit_offset` (zero) lets the raw outputs be differentiated
    by; `w`: weights and other scalars of the losses."""
    outputs, pre, hidden = forward(online, batch["states"], w["factors"], w["trunk_scale"])
    outputs = scale_gradient(outputs + logit_offset, w["spike"])
    log_p = log_probabilities(outputs, z.shape[0])
    actions = batch["actions"]
    chosen = jnp.stack([at(l, actions[:, d]) for d, l in enumerate(log_p)], axis=1)  # [B, 3, Z]
    q = jnp.exp(chosen) @ z
    y = m @ z
    cross_entropy = -jnp.sum(m * chosen, axis=2)
    entropy = -jnp.sum(jax.scipy.special.xlogy(m, m), axis=2)
    kl = cross_entropy - entropy
    c51 = cross_entropy.mean(axis=1)
    mse = jnp.square(q - y).mean(axis=1)
    difference = (1.0 - w["blend"]) * mse + w["blend"] * c51

    all_q = action_values(log_p, z)
    cql = sum(jax.scipy.special.logsumexp(x, axis=1) - at(x, actions[:, d]) for d, x in enumerate(all_q)) / len(all_q)
    label = exposure_label(batch, w)
    log_policy = jax.nn.log_softmax(all_q[0] / w["temperature"], axis=1)
    auxiliary = -jnp.sum(label * log_policy, axis=1)
    diversity = squared_cosines(hidden)
    rows = batch["weights"] * difference + w["cql"] * cql + w["auxiliary"] * auxiliary + w["nan"]
    total = jnp.mean(rows)
    return total + w["diversity"] * jnp.mean(diversity), {
        "logits/online": outputs,
        "q/chosen": q.mean(axis=1),
        "q/online": jnp.concatenate(all_q, axis=1),
        "label": label,
        "policy": jnp.exp(log_policy),
        "loss/total": total,
        "loss/rows": rows,
        "loss/c51": c51,
        "loss/mse": mse,
        "loss/kl": jnp.where(w["blend"] > 0, kl, cross_entropy).mean(axis=1),  # the entropy is computed for C51 only
        "loss/cql": cql,
        "loss/auxiliary": auxiliary,
        "loss/diversity": diversity,
        "delta": (1.0 - w["blend"]) * jnp.abs(q - y).mean(axis=1) + w["blend"] * jnp.maximum(kl, 0.0).mean(axis=1),
        "margin": jnp.stack([jnp.min(jnp.abs(x), axis=1) for x in pre]).min(axis=0),
    }


loss_jit = jax.jit(lambda *arguments: loss(*arguments)[0])  # the value alone, for difference quotients


@functools.partial(jax.jit, static_argnames="atoms")
def loss_and_gradient(online, target, batch, support, w, options, atoms):
    """All of the step that depends on the batch. Everything but sizes is traced: one compilation a shape."""
    z = atoms_of(support, atoms)
    chosen = jax.lax.stop_gradient(make_target(online, target, batch, z, options))
    offset = jnp.zeros((batch["states"].shape[0], sum(HEAD_ROWS) * atoms))
    gradient, result = jax.grad(loss, argnums=(0, 1), has_aux=True)(online, offset, chosen["target"], batch, z, w)
    return {**chosen, **result, "logit_gradient": gradient[1]}, gradient[0]


@functools.partial(jax.jit, static_argnames="atoms")
def values(online, states, support, atoms):
    """Q(s, a) of all actions, [B, 15]."""
    log_p = log_probabilities(forward(online, states)[0], atoms)
    return jnp.concatenate(action_values(log_p, atoms_of(support, atoms)), axis=1)


# --- Spectral norm ---------------------------------------------------------------------------------------------------


def start_vectors(w, iterations=10):
    """u (not normalised) and v after power iterations; the first v is the row of largest norm."""
    v = w[np.argmax(np.linalg.norm(w, axis=1))]
    u = w @ v
    for _ in range(iterations):
        _, u, v = power_iteration(w, u)
    return u, v


def power_iteration(w, u):
    """sigma, the next u (not normalised) and v. A zero matrix has sigma 0."""
    norm = np.linalg.norm(u)
    t = w.T @ (u / norm if norm > 0 else u)
    sigma = np.linalg.norm(t)
    v = t / sigma if sigma > 0 else t
    return sigma, w @ v, v


# --- Step ------------------------------------------------------------------------------------------------------------


def group(state, prefix):
    """The float64 tensors under `prefix`, biases as vectors."""
    return {
        name[len(prefix) :]: np.asarray(value, np.float64).reshape(-1 if name.endswith("bias") else np.shape(value))
        for name, value in state.items()
        if name.startswith(prefix)
    }


def named(prefix, tensors):
    return {prefix + name: value for name, value in tensors.items()}


def key_of(state, settings):
    """Seed and fold."""
    return settings["run.seed"], int(state.get("fold", 1))


COUNTERS = {
    "skipped": 0,
    "fault_iteration": 0,
    "fault_norm": 0.0,
    "norm_mean": 0.0,
    "rate_multiplier": 1.0,
    "auxiliary_multiplier": 1.0,
    "skips_in_a_row": 0,
    "rollbacks": 0,
    "stopped": 0,
    "fault": 0,
}


def counters_of(state):
    """Counters by name, those that the file leaves out at their start."""
    given = {
        name[len("counters/") :]: np.asarray(v).item() for name, v in state.items() if name.startswith("counters/")
    }
    return {**COUNTERS, "snapshot_adam_t": given["adam_t"], **given}


def project_weights(state, settings):
    """Spectral norm: projected online parameters; the vectors u and v before and after, by matrix; sigma."""
    online = group(state, "parameters/online/")
    before, after, sigmas = {}, {}, {}
    for name, w in online.items():
        bound = settings.bound(name)
        if bound == 0:
            continue
        if f"spectral/u/{name}" in state:
            before[name] = tuple(np.asarray(state[f"spectral/{k}/{name}"], np.float64).reshape(-1) for k in "uv")
        else:
            before[name] = start_vectors(w)
        if counters_of(state)["stopped"]:
            after[name] = before[name]
            continue
        sigma, u, v = power_iteration(w, before[name][0])
        online[name] = w * min(1.0, bound / sigma) if sigma > 0 else w
        sigmas[f"spectral/sigma/{name}"] = sigma
        after[name] = (u, v)
    return online, before, after, sigmas


def vector_sets(prefix, vectors):
    return {f"{prefix}{k}/{name}": uv[i] for name, uv in vectors.items() for i, k in enumerate("uv")}


def scalars(state, settings, blocks):
    """Weights and other scalars of the losses, and the factors of the residual blocks."""
    iteration = int(state["counters/iteration"])
    w = {
        "blend": settings.blend(iteration),
        "cql": settings["cql.weight"],
        "auxiliary": settings.auxiliary_weight(iteration) * counters_of(state)["auxiliary_multiplier"],
        "diversity": settings["diversity.weight"],
        "trunk_scale": 1.0 / len(HEADS) if settings["agent.scale_trunk_gradient"] else 1.0,
        "factors": replay.block_factors(key_of(state, settings), iteration, blocks, settings["network.survival"]),
        "spike": settings["inject.grad_spike_factor"] if settings.within("grad_spike", iteration) else 1.0,
        "nan": np.nan if settings.within("nan", iteration) else 0.0,
        "temperature": settings["auxiliary.temperature"],
        "label_temperature": settings["auxiliary.label_temperature"],
        "risk": settings["auxiliary.risk"],
        "cost": 1e-4 * (settings["account.taker_fee_bp"] + settings["account.half_spread_bp"]),
        "sd": float(state.get("market/return_sd", 1.0)),
    }
    return {name: np.asarray(value, np.float64) for name, value in w.items()}


def evaluate(state, settings, next_action=None, online=None):
    """Losses and gradient of the projected network on `batch/...`. `next_action` [B, 3] replaces own choices where it
    is >= 0."""
    if online is None:
        online = project_weights(state, settings)[0]
    rows = len(state["batch/rewards"])
    batch = {"next_returns": np.zeros(rows), "exposures": np.zeros(rows)}
    used = ("states", "next_states", "rewards", "discounts", "weights", "next_returns", "exposures")
    batch |= {name: value for name, value in group(state, "batch/").items() if name in used}
    batch["actions"] = np.asarray(state["batch/actions"], np.int32)
    if next_action is None:
        next_action = np.full(batch["actions"].shape, -1)
    options = {
        "double_dqn": np.asarray(settings["agent.double_dqn"]),
        "mean": np.asarray(settings["agent.target"] == "mean"),
        "next_action": np.asarray(next_action, np.int32),
    }
    blocks = sum(n.startswith("block.") and n.endswith("weight") for n in online)
    w = scalars(state, settings, blocks)
    support = np.asarray([state["support/vmin"], state["support/vmax"]], np.float64)
    atoms = online["output.value.weight"].shape[0]
    result, gradient = loss_and_gradient(online, group(state, "parameters/target/"), batch, support, w, options, atoms)
    result, gradient = {k: np.array(v) for k, v in result.items()}, {k: np.array(v) for k, v in gradient.items()}
    # A row whose loss is not finite is not finite in the gradient either, where the guard sees it.
    bad = ~np.isfinite(result["loss/rows"])
    result["logit_gradient"][bad] = np.nan
    if bad.any():
        gradient = {name: np.full_like(g, np.nan) for name, g in gradient.items()}
    if settings["network.survival"] < 1:
        result["block_factors"] = w["factors"]
    # Datasets of parts that are off are not written.
    if settings["cql.weight"] == 0:
        result.pop("loss/cql")
        result["q/online"] = result["q/online"][:, : ACTIONS[0]]
    if settings["auxiliary.weight"] == 0:
        for name in ("loss/auxiliary", "label", "policy"):
            result.pop(name)
        if settings["cql.weight"] == 0:
            result.pop("q/online")
    if settings["diversity.weight"] == 0:
        result.pop("loss/diversity")
    return result, gradient


def judge(settings, before, norm):
    """The guard's verdict: the counters after a step whose gradient has this norm, the clip factor, and whether the
    last snapshot comes back."""
    c = dict(before)
    c["iteration"] += 1
    finite = bool(np.isfinite(norm))
    bounded = settings["guard.spike_factor"] > 0 and before["norm_mean"] > 0
    bound = (
        max(settings["guard.spike_floor"], settings["guard.spike_factor"] * before["norm_mean"]) if bounded else np.inf
    )
    armed = before["iteration"] >= settings["agent.warmup_steps"] + settings["agent.blend_steps"]
    if finite:  # the mean takes no more than the bound
        seen, rate = min(norm, bound), settings["guard.norm_rate"]
        c["norm_mean"] = (1 - rate) * before["norm_mean"] + rate * seen if before["norm_mean"] > 0 else seen
    fault = "not finite" if not finite else "spike" if armed and norm > bound else "none"
    if fault == "none":
        c["adam_t"] += 1
        c["skips_in_a_row"] = 0
        if settings["guard.patience"] > 0 and c["adam_t"] % settings["guard.snapshot_steps"] == 0:
            c["snapshot_adam_t"] = c["adam_t"]
        return c, min(1.0, settings["optimiser.clip_norm"] / norm) if norm > 0 else 1.0, False
    c |= {"fault": FAULTS[fault], "fault_iteration": before["iteration"], "fault_norm": norm}
    c["skipped"] += 1
    c["skips_in_a_row"] += 1
    restored = settings["guard.patience"] > 0 and c["skips_in_a_row"] >= settings["guard.patience"]
    if restored:
        c["stopped" if before["rollbacks"] >= settings["guard.max_rollbacks"] else "rollbacks"] += 1
        c["skips_in_a_row"] = 0
        c["adam_t"] = before["snapshot_adam_t"]
        c["rate_multiplier"] /= 2
    return c, 0.0, restored


def group_of(tensor):
    """Group under whose name a tensor's norm is reported."""
    kind, part = tensor.split(".")[:2]
    return {"trunk": "trunk", "block": "blocks"}.get(kind, "head_biases" if part == "bias" else part)


@dataclass
class Parts:
    """Everything that training changes in a network: what a snapshot keeps."""

    online: dict
    target: dict
    first: dict
    second: dict
    mask: dict
    vectors: dict

    PREFIXES = ("parameters/online/", "parameters/target/", "optimiser/first_moment/", "optimiser/second_moment/")
    SNAPSHOT = ("snapshot/online/", "snapshot/target/", "snapshot/first_moment/", "snapshot/second_moment/")

    @classmethod
    def read(cls, state, prefixes, mask_prefix, vectors):
        tensors = [group(state, p) for p in prefixes]
        mask = {
            n: np.asarray(state.get(mask_prefix + n, np.zeros(w.shape)), bool)
            for n, w in tensors[0].items()
            if n.endswith("weight")
        }
        return cls(*tensors, mask, vectors)

    def copy(self):
        return Parts(*({k: v for k, v in part.items()} for part in vars(self).values()))

    def datasets(self, prefixes, mask_prefix, vector_prefix, pruning):
        out = {}
        for prefix, tensors in zip(prefixes, (self.online, self.target, self.first, self.second)):
            out |= named(prefix, tensors)
        if pruning:
            out |= named(mask_prefix, self.mask)
        return out | vector_sets(vector_prefix, self.vectors)

    def clear(self, name, pruned):
        for tensors in (self.online, self.target, self.first, self.second):
            tensors[name] = np.where(pruned, 0.0, tensors[name])


def update(parts, gradient, clip, rate, t, settings):
    """Clip, AdamW, Polyak; pruned weights stay 0."""
    beta1, beta2 = settings["optimiser.beta1"], settings["optimiser.beta2"]
    tau = settings["optimiser.tau"]
    for name, g in gradient.items():
        parts.first[name] = beta1 * parts.first[name] + (1.0 - beta1) * clip * g
        parts.second[name] = beta2 * parts.second[name] + (1.0 - beta2) * np.square(clip * g)
        m, v = parts.first[name] / (1.0 - beta1**t), parts.second[name] / (1.0 - beta2**t)
        decay = settings["optimiser.weight_decay"] if name.endswith("weight") else 0.0
        w = parts.online[name]
        parts.online[name] = w - rate * (m / (np.sqrt(v) + settings["optimiser.epsilon"]) + decay * w)
        parts.target[name] = (1.0 - tau) * parts.target[name] + tau * parts.online[name]
        if name in parts.mask:
            parts.clear(name, parts.mask[name])


def prune(parts, sparsity, doubt, seen):
    """Renews the masks: of each matrix the floor(sparsity elements) of least magnitude. Weights within `doubt` of the
    threshold are decided by `seen` (matrix -> mask) where it is given; returns the numbers of pruned weights."""
    counts = {}
    for name in parts.mask:
        size = np.abs(parts.online[name])
        count = int(sparsity * size.size)
        if count == 0:
            continue
        threshold = np.sort(size, axis=None)[count - 1]
        mask = size <= threshold
        close = np.abs(size - threshold) <= doubt + 2.0**-22 * threshold
        if seen:
            mask = np.where(close, seen[name].astype(bool), mask)
        counts[f"mask_count/{name}"] = max(count, int(np.sum(size == 0)))
        parts.mask[name] = mask
        parts.clear(name, mask)
    return counts


def causal_delta(state, settings, online, states):
    """Mean |Q - Q_do| / mean |Q| of each group of inputs; every state takes the group of a random other one."""
    groups, key, iteration = (
        np.asarray(state["causal/groups"]),
        key_of(state, settings),
        int(state["counters/iteration"]),
    )
    batch, rows = len(states), min(settings["causal.rows"], len(states))
    own = np.arange(rows) * batch // rows
    changed = [states[own]]
    for g in range(groups.max() + 1):
        others = [
            replay.below(replay.random_words(key, "causal", iteration, g * rows + k)[0], batch - 1) for k in range(rows)
        ]
        donors = [other + (other >= row) for other, row in zip(others, own)]
        changed.append(np.where(groups == g, states[donors], states[own]))
    support = np.asarray([state["support/vmin"], state["support/vmax"]], np.float64)
    q = np.asarray(values(online, np.concatenate(changed), support, online["output.value.weight"].shape[0]))
    q = q.reshape(len(changed), rows, -1)
    return np.mean(np.abs(q[1:] - q[0]), axis=(1, 2)) / np.mean(np.abs(q[0]))


def step(state, settings, seen=None):
    """One training step. `seen`: a result of the program, which decides where float32 may: next actions `next_action`
    (where >= 0), masks near their threshold, and the deltas from which priorities are made. Also returned, beyond
    docs/step-format.md: `gap` [B, 3], distance of the two best actions' values at s', `margin` [B], the least distance
    of a ReLU's argument at s from its kink, and `mask_count/<tensor>`."""
    seen = seen or {}
    before = counters_of(state)
    online, old_vectors, new_vectors, sigmas = project_weights(state, settings)
    now = Parts.read(state, Parts.PREFIXES, "mask/", old_vectors)
    result = {}
    drawn = "replay/leaves" in state
    if drawn:
        result |= replay.gather(state, settings, key_of(state, settings), settings["train.batch"])
        if settings["auxiliary.weight"] == 0:
            del result["batch/next_returns"], result["batch/exposures"]
    losses, gradient = evaluate({**state, **result}, settings, seen.get("next_action"), online)
    result |= losses | sigmas
    if settings.measures(before["iteration"]):
        states = np.asarray(result["batch/states"] if drawn else state["batch/states"], np.float64)
        result["q_delta"] = causal_delta(state, settings, online, states)
    result |= named("gradient/", gradient)

    # Snapshots exist for rollbacks; without one in the file it is the state as it was given.
    snapshot = None
    if settings["guard.patience"] > 0:
        snapshot = now.copy()
        if "snapshot/online/output.bias" in state:
            vectors = {
                n: tuple(
                    np.asarray(state.get(f"snapshot/spectral/{k}/{n}", uv[i]), np.float64) for i, k in enumerate("uv")
                )
                for n, uv in old_vectors.items()
            }
            snapshot = Parts.read(state, Parts.SNAPSHOT, "snapshot/mask/", vectors)

    squares = {name: np.sum(np.square(np.where(now.mask.get(name, False), 0.0, g))) for name, g in gradient.items()}
    norm = np.sqrt(sum(squares.values()))
    now.online = online
    skip, restored, taken, counters = True, False, False, before
    if not before["stopped"]:
        counters, clip, restored = judge(settings, before, norm)
        skip = clip == 0.0
        taken = not skip and counters["snapshot_adam_t"] != before["snapshot_adam_t"]
        result |= {"gradient_norm": norm, "clip": clip}
        for name in GROUPS:
            of_group = [s for tensor, s in squares.items() if group_of(tensor) == name]
            result[f"gradient_norms/{name}"] = np.sqrt(sum(of_group))
    else:
        del result["loss/total"]
    if restored:
        now = snapshot.copy()
    elif not skip:
        now.vectors = new_vectors
        rate = settings.rate(before["iteration"]) * before["rate_multiplier"]
        update(now, gradient, clip, rate, counters["adam_t"], settings)
        if taken:
            snapshot = now.copy()
        if settings.prunes(before["iteration"]):
            result |= prune(now, settings.sparsity(before["iteration"]), 1e-3 * rate, group(seen, "mask/"))
    if drawn:
        leaves = np.asarray(state["replay/leaves"])
        if skip:
            result |= {f"priorities/{n}": 0 for n in ("saturated", "rejected", "dropped")} | replay.leaves_after(leaves)
        else:
            result |= replay.update_priorities(leaves, result, seen.get("delta", result["delta"]), settings)

    pruning = settings["pruning.sparsity"] > 0
    result |= now.datasets(Parts.PREFIXES, "mask/", "spectral/", pruning)
    if snapshot:
        result |= snapshot.datasets(Parts.SNAPSHOT, "snapshot/mask/", "snapshot/spectral/", pruning)
    result |= {"skipped": skip, "rolled_back": restored, "snapshot_taken": taken} | named("counters/", counters)
    return result
