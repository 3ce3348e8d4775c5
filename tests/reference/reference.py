"""One training step in float64, written from the published equations and independent of the C++ sources.

    spectral norm      Miyato et al. 2018 (power iteration), in place, then min(1, c / sigma)
    network            Wang et al. 2016 (dueling), Tavakoli et al. 2018 (branches), residual trunk
    target             van Hasselt et al. 2016 (double), Bellemare et al. 2017, algorithm 1 (projection)
    loss               importance weights of Schaul et al. 2016; expected-value loss blended into C51's cross entropy
    optimiser          global norm clip, Loshchilov & Hutter 2019 (AdamW), Polyak averaging

The loss is written out and differentiated by JAX; no backward formula appears here. A state, a batch and a result are
dictionaries whose keys are the dataset names of docs/step-format.md and whose values are NumPy arrays.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

BRANCHES = ("exposure", "order", "urgency")
ACTIONS = (9, 3, 3)
HEADS = ("value",) + BRANCHES
HEAD_ROWS = (1,) + ACTIONS  # output rows of a head, in units of Z


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


# Settings of a step by section of the configuration.
SECTIONS = {
    "agent": ("double_dqn", "target", "warmup_steps", "blend_steps"),
    "optimiser": (
        "learning_rate",
        "final_fraction",
        "ramp_steps",
        "beta1",
        "beta2",
        "epsilon",
        "weight_decay",
        "clip_norm",
        "tau",
        "spectral_trunk",
        "spectral_output",
    ),
    "train": ("steps",),
}


@dataclass(frozen=True)
class Settings:
    """The settings that one step depends on, named as in the configuration file."""

    double_dqn: bool
    target: str
    warmup_steps: int
    blend_steps: int
    learning_rate: float
    final_fraction: float
    ramp_steps: int
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip_norm: float
    tau: float
    spectral_trunk: float
    spectral_output: float
    steps: int

    @classmethod
    def from_config(cls, config):
        """From the parsed TOML: sections agent, optimiser and train; a missing setting is a KeyError."""
        values = {}
        for section, names in SECTIONS.items():
            for name in names:
                values[name] = config[section][name]
        return cls(**values)

    def blend(self, iteration):
        """Share of the C51 loss."""
        if iteration < self.warmup_steps:
            return 0.0
        if self.blend_steps == 0:
            return 1.0
        return min(1.0, (iteration - self.warmup_steps) / self.blend_steps)

    def rate(self, iteration):
        """Learning rate: a linear ramp that reaches the peak at iteration ramp_steps - 1, then linear from there to
        `final_fraction` of the peak at iteration `steps`."""
        if iteration < self.ramp_steps:
            return self.learning_rate * (iteration + 1) / self.ramp_steps
        peak = max(0, self.ramp_steps - 1)
        progress = min(1.0, (iteration - peak) / max(1, self.steps - peak))
        return self.learning_rate * (1.0 + (self.final_fraction - 1.0) * progress)

    def bound(self, tensor):
        """Largest spectral norm of a tensor; 0: unbounded."""
        if tensor.endswith("bias"):
            return 0.0
        return self.spectral_output if tensor.startswith("output.") else self.spectral_trunk


# --- Network ---------------------------------------------------------------------------------------------------------


def trunk(p, x):
    """Pre-activations of every ReLU in the trunk, and its output [B, H2]."""
    pre = [x @ p["trunk.0.weight"].T + p["trunk.0.bias"]]
    h = jax.nn.relu(pre[-1])
    pre.append(h @ p["trunk.1.weight"].T + p["trunk.1.bias"])
    h = jax.nn.relu(pre[-1])
    for l in range(sum(name.startswith("block.") and name.endswith("weight") for name in p)):
        pre.append(h @ p[f"block.{l}.weight"].T + p[f"block.{l}.bias"])
        h = h + jax.nn.relu(pre[-1])
    return pre, h


def forward(p, x):
    """Raw head outputs [B, 16 Z] (value, then each branch's actions) and all ReLU pre-activations."""
    pre, h = trunk(p, x)
    hidden_bias = jnp.split(p["hidden.bias"], len(HEADS))
    outputs = []
    for head, bias in zip(HEADS, hidden_bias):
        pre.append(h @ p[f"hidden.{head}.weight"].T + bias)
        outputs.append(jax.nn.relu(pre[-1]) @ p[f"output.{head}.weight"].T)
    return jnp.concatenate(outputs, axis=1) + p["output.bias"], pre


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
    online_next, _ = forward(online, batch["next_states"])
    target_next, _ = forward(target, batch["next_states"])
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


def loss(online, logit_offset, m, batch, z, blend):
    """(1/B) sum_i w_i of the blended loss. `logit_offset` (zero) lets the raw outputs be differentiated by."""
    outputs, pre = forward(online, batch["states"])
    outputs = outputs + logit_offset
    log_p = log_probabilities(outputs, z.shape[0])
    actions = batch["actions"]
    chosen = jnp.stack([at(l, actions[:, d]) for d, l in enumerate(log_p)], axis=1)  # [B, 3, Z]
    q = jnp.exp(chosen) @ z
    y = m @ z
    cross_entropy = -jnp.sum(m * chosen, axis=2)
    entropy = -jnp.sum(jax.scipy.special.xlogy(m, m), axis=2)
    kl = jnp.maximum(cross_entropy - entropy, 0.0)
    c51 = cross_entropy.mean(axis=1)
    mse = jnp.square(q - y).mean(axis=1)
    rows = (1.0 - blend) * mse + blend * c51
    total = jnp.mean(batch["weights"] * rows)
    return total, {
        "logits/online": outputs,
        "q/chosen": q.mean(axis=1),
        "loss/total": total,
        "loss/rows": batch["weights"] * rows,
        "loss/c51": c51,
        "loss/mse": mse,
        "loss/kl": jnp.where(blend > 0, kl, cross_entropy).mean(axis=1),  # the entropy is computed for C51 only
        "delta": (1.0 - blend) * jnp.abs(q - y).mean(axis=1) + blend * kl.mean(axis=1),
        "margin": jnp.stack([jnp.min(jnp.abs(x), axis=1) for x in pre]).min(axis=0),
    }


loss_jit = jax.jit(lambda *arguments: loss(*arguments)[0])  # the value alone, for difference quotients


@functools.partial(jax.jit, static_argnames="atoms")
def loss_and_gradient(online, target, batch, support, blend, options, atoms):
    """All of the step that depends on the batch. Everything but sizes is traced: one compilation a shape."""
    z = support[0] + (support[1] - support[0]) * jnp.arange(atoms) / (atoms - 1)
    chosen = jax.lax.stop_gradient(make_target(online, target, batch, z, options))
    offset = jnp.zeros((batch["states"].shape[0], sum(HEAD_ROWS) * atoms))
    gradient, result = jax.grad(loss, argnums=(0, 1), has_aux=True)(online, offset, chosen["target"], batch, z, blend)
    return {**chosen, **result, "logit_gradient": gradient[1]}, gradient[0]


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


def project_weights(state, settings):
    """Spectral norm: projected online parameters and the datasets `spectral/...`."""
    online, out = group(state, "parameters/online/"), {}
    for name, w in online.items():
        bound = settings.bound(name)
        if bound == 0:
            continue
        if f"spectral/u/{name}" in state:
            u = np.asarray(state[f"spectral/u/{name}"], np.float64).reshape(-1)
        else:
            u, _ = start_vectors(w)
        sigma, u, v = power_iteration(w, u)
        online[name] = w * min(1.0, bound / sigma) if sigma > 0 else w
        out |= {f"spectral/sigma/{name}": sigma, f"spectral/u/{name}": u, f"spectral/v/{name}": v}
    return online, out


def evaluate(state, settings, next_action=None, online=None):
    """Losses and gradient of the projected network. `next_action` [B, 3] replaces own choices where it is >= 0."""
    if online is None:
        online, _ = project_weights(state, settings)
    batch = {k: jnp.asarray(v, jnp.float64) for k, v in group(state, "batch/").items()}
    batch["actions"] = jnp.asarray(state["batch/actions"], jnp.int32)
    if next_action is None:
        next_action = np.full(batch["actions"].shape, -1)
    options = {
        "double_dqn": jnp.asarray(settings.double_dqn),
        "mean": jnp.asarray(settings.target == "mean"),
        "next_action": jnp.asarray(next_action, jnp.int32),
    }
    support = jnp.asarray([state["support/vmin"], state["support/vmax"]], jnp.float64)
    blend = settings.blend(int(state["counters/iteration"]))
    atoms = online["output.value.weight"].shape[0]
    result, gradient = loss_and_gradient(
        online, group(state, "parameters/target/"), batch, support, blend, options, atoms
    )
    return {k: np.asarray(v) for k, v in result.items()}, {k: np.asarray(v) for k, v in gradient.items()}


def step(state, settings, next_action=None):
    """One training step. Also returned, beyond docs/step-format.md: `gap` [B, 3], distance of the two best actions'
    values at s', and `margin` [B], the least distance of a ReLU's argument at s from its kink."""
    online, spectral = project_weights(state, settings)
    result, gradient = evaluate(state, settings, next_action, online)
    target = group(state, "parameters/target/")
    first, second = group(state, "optimiser/first_moment/"), group(state, "optimiser/second_moment/")
    iteration, t = int(state["counters/iteration"]), int(state["counters/adam_t"])

    norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradient.values()))
    finite = np.isfinite(norm) and np.isfinite(result["loss/total"]) and np.all(np.isfinite(result["logits/online"]))
    clip = min(1.0, settings.clip_norm / norm) if norm > 0 else 1.0
    if finite:
        t += 1
        rate = settings.rate(iteration)
        for name, g in gradient.items():
            first[name] = settings.beta1 * first[name] + (1.0 - settings.beta1) * clip * g
            second[name] = settings.beta2 * second[name] + (1.0 - settings.beta2) * np.square(clip * g)
            m = first[name] / (1.0 - settings.beta1**t)
            v = second[name] / (1.0 - settings.beta2**t)
            decay = settings.weight_decay if name.endswith("weight") else 0.0
            online[name] = online[name] - rate * (m / (np.sqrt(v) + settings.epsilon) + decay * online[name])
            target[name] = (1.0 - settings.tau) * target[name] + settings.tau * online[name]

    result |= spectral
    result |= {"gradient_norm": norm, "clip": clip, "skipped": not finite}
    result |= {"counters/iteration": iteration + 1, "counters/adam_t": t}
    for prefix, tensors in {
        "gradient/": gradient,
        "parameters/online/": online,
        "parameters/target/": target,
        "optimiser/first_moment/": first,
        "optimiser/second_moment/": second,
    }.items():
        result |= {prefix + name: value for name, value in tensors.items()}
    return result
