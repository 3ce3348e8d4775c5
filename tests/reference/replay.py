"""Replay in float64 and exact integers: random words, stratified draws, hindsight, n-step returns, priorities.

    random words       Salmon et al. 2011 (Philox4x32-10), keyed as docs/step-format.md says
    sampling           Schaul et al. 2016 (proportional, stratified), in integers
    hindsight          Andrychowicz et al. 2017 (strategy `future`)
    n-step returns     Sutton 1988

Independent of the C++ sources. Datasets are named as in docs/step-format.md.
"""

import numpy as np

PURPOSES = {"sample": 2, "hindsight": 9, "depth": 10, "causal": 11}
TERMINAL, TRUNCATED = 1, 2
NO_ROW = 0xFFFFFFFF
UNIT = 2.0**20  # priority units


# --- Random words ----------------------------------------------------------------------------------------------------


def philox(counter, key):
    """Four 32-bit words from a counter of four and a key of two: ten rounds."""
    c, k = [int(x) for x in counter], [int(x) for x in key]
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (product1 >> 32) ^ c[1] ^ k[0],
            product1 & 0xFFFFFFFF,
            (product0 >> 32) ^ c[3] ^ k[1],
            product0 & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def random_words(key, purpose, iteration, index):
    """The words of one draw. `key`: (seed, fold)."""
    return philox((index, iteration & 0xFFFFFFFF, iteration >> 32, PURPOSES[purpose]), key)


def uniform(word):
    """In [0, 1), from the upper 24 bits."""
    return (word >> 8) / 2.0**24


def below(word, bound):
    """Integer in [0, bound)."""
    return (word * bound) >> 32


def block_factors(key, iteration, blocks, survival):
    """Stochastic depth: m_l / q_l of each residual block."""
    factors = []
    for l in range(1, blocks + 1):
        q = 1.0 - (1.0 - survival) * l / blocks
        kept = uniform(random_words(key, "depth", iteration, l)[0]) < q
        factors.append((1.0 if kept else 0.0) / q)
    return np.array(factors)


# --- The ring --------------------------------------------------------------------------------------------------------


class Ring:
    """Rows [slot, env] of `replay/...`; a row's number is slot * envs + env."""

    def __init__(self, state):
        names = ("bar", "action", "flags", "episode_offset", "bars_held", "goal", "before", "after", "leaves")
        self.rows = {n: np.asarray(state[f"replay/{n}"]) for n in names}
        self.slots, self.envs = self.rows["leaves"].shape
        self.written = int(state["replay/slots_written"])

    def write(self, row):
        """How many slots were written before the one that this row is part of."""
        slot = row // self.envs
        return self.written - 1 - (self.written - 1 - slot) % self.slots

    def later(self, row):
        """The rows of the same account from `row` on that are in the ring, oldest first, to its episode's end."""
        for w in range(self.write(row), self.written):
            number = (w % self.slots) * self.envs + row % self.envs
            yield number
            if self.get("flags", number):
                return

    def get(self, name, row):
        value = self.rows[name][row // self.envs, row % self.envs]
        return value.astype(np.float64) if value.dtype == np.float32 else value


def draw(leaves, batch, key, iteration):
    """One row from each of `batch` equal parts of the total priority: the row in whose part of the running sum the
    target floor((k 2^32 + r) total / (batch 2^32)) lies."""
    sums = np.cumsum(leaves.reshape(-1), dtype=np.uint64)
    total = int(sums[-1])
    rows = []
    for k in range(batch):
        target = ((k << 32) + random_words(key, "sample", iteration, k)[0]) * total // (batch << 32)
        rows.append(int(np.searchsorted(sums, np.uint64(target), side="right")))
    return np.array(rows, np.uint32)


def candidates(ring, row, horizon):
    """Possible donors of a row: it and the later ones of its episode within the horizon."""
    return [r for _, r in zip(range(horizon), ring.later(row))]


def donor(ring, settings, key, iteration, position, row):
    """The donor of the row at a position of the batch, or none."""
    words = random_words(key, "hindsight", iteration, position)
    if not uniform(words[0]) < np.float32(settings["hindsight.share"]):
        return None
    possible = candidates(ring, row, settings["hindsight.horizon"])
    return possible[below(words[1], len(possible))]


def goals_on(settings):
    return settings["reward.goal_bonus"] != 0 or settings["hindsight.share"] != 0


def account_inputs(settings, account, bars_held, goal):
    """exposure, 10 unrealised, log(1 + held) / log(1 + window), 10 drawdown, 10 goal gap."""
    exposure, unrealised, drawdown, growth = account
    clip = settings["goal.clip"]
    gap = float(np.clip(goal - growth, -clip, clip)) if goals_on(settings) else 0.0
    held = np.log1p(float(bars_held)) / np.log1p(settings["collect.window"])
    return [exposure, 10 * unrealised, held, 10 * drawdown, 10 * gap]


def peak_growth(growth, drawdown):
    """Log growth at the equity's peak so far; the episode's start, 0, is part of it."""
    return max(0.0, growth - np.log1p(-drawdown))


def achieved(ring, row):
    """The goal that a donor gives: the episode's log growth after its decision."""
    return float(ring.get("after", row)[3])


def transition(ring, settings, scale, row, goal):
    """R, bootstrap discount and the last row of a row's n-step return under a goal."""
    gamma, kappa = float(np.float32(settings["agent.gamma"])), settings["reward.goal_bonus"]
    _, _, drawdown, growth = ring.get("before", row)
    paid = peak_growth(growth, drawdown) >= goal
    total, discount = 0.0, 1.0
    for _, last in zip(range(settings["agent.n_step"]), ring.later(row)):
        before, after = ring.get("before", last), ring.get("after", last)
        reward = scale * (after[3] - before[3]) - settings["reward.inventory_penalty"] * after[0] ** 2
        if not paid and after[3] >= goal:
            reward, paid = reward + kappa, True
        total, discount = total + discount * reward, discount * gamma
        if ring.get("flags", last) & TERMINAL:
            discount = 0.0
    return total, discount, last


def gather(state, settings, key, batch):
    """Draws a batch from `replay/...`: its datasets `batch/...`."""
    ring, iteration = Ring(state), int(state["counters/iteration"])
    features, close = np.asarray(state["market/features"], np.float64), state["market/close"]
    width, scale = int(state["state_width"]), float(state["market/reward_scale"])
    rows = draw(ring.rows["leaves"], batch, key, iteration)
    leaves = ring.rows["leaves"].reshape(-1)[rows]
    beta = settings.linear("replay.beta", 1.0, settings["train.steps"], iteration)
    out = {
        "rows": rows,
        "leaves": leaves,
        "weights": (leaves.min() / leaves.astype(np.float64)) ** beta,
        "states": np.zeros((batch, width)),
        "next_states": np.zeros((batch, width)),
        "actions": np.stack([ring.get("action", r) for r in rows]),
    }
    for name in ("rewards", "discounts", "next_returns", "exposures", "goals"):
        out[name] = np.zeros(batch)
    out["relabelled"], out["donors"] = np.zeros(batch, np.uint8), np.full(batch, NO_ROW, np.uint32)
    for k, row in enumerate(map(int, rows)):
        goal = float(ring.get("goal", row))
        from_row = donor(ring, settings, key, iteration, k, row)
        if from_row is not None:
            goal = achieved(ring, from_row)
            out["relabelled"][k], out["donors"][k] = 1, from_row
        out["rewards"][k], out["discounts"][k], last = transition(ring, settings, scale, row, goal)
        bar = int(ring.get("bar", row))
        held_before, held_after = ring.get("bars_held", row)[0], ring.get("bars_held", last)[1]
        before = list(features[bar]) + account_inputs(settings, ring.get("before", row), held_before, goal)
        after_features = features[int(ring.get("bar", last)) + 1]
        after = list(after_features) + account_inputs(settings, ring.get("after", last), held_after, goal)
        out["states"][k, : len(before)], out["next_states"][k, : len(after)] = before, after
        out["next_returns"][k] = close[bar + 1] / close[bar] - 1
        out["exposures"][k], out["goals"][k] = ring.get("before", row)[0], goal
    return {f"batch/{name}": value for name, value in out.items()}


# --- Priorities ------------------------------------------------------------------------------------------------------


def units_of(delta, settings):
    """Fixed-point priority of a delta, and whether it saturates."""
    units = (delta + settings["replay.epsilon"]) ** settings["replay.alpha"] * UNIT
    return (NO_ROW, True) if units >= NO_ROW else (max(1, int(units)), False)


def update_priorities(leaves, batch, deltas, settings):
    """Datasets of the priorities' way back, from the deltas of the drawn rows. Of rows drawn twice the later wins."""
    new = np.array(leaves, np.uint32)
    rows, units = np.full(len(deltas), NO_ROW, np.uint32), np.zeros(len(deltas), np.uint32)
    saturated = rejected = 0
    for k, delta in enumerate(np.asarray(deltas, np.float64)):
        if batch["batch/relabelled"][k] and not settings["hindsight.update_priorities"]:
            continue
        if not delta >= 0:
            rejected += 1
            continue
        rows[k] = batch["batch/rows"][k]
        units[k], over = units_of(delta, settings)
        saturated += over
        new.reshape(-1)[rows[k]] = units[k]
    return {
        "priorities/rows": rows,
        "priorities/units": units,
        "priorities/saturated": saturated,
        "priorities/rejected": rejected,
        "priorities/dropped": 0,
        **leaves_after(new),
    }


def leaves_after(leaves):
    return {"replay/leaves": leaves, "replay/total": int(np.sum(leaves, dtype=np.uint64))}
