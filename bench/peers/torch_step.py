#!/usr/bin/env python3
"""Vulpes' training step with every learning part on, in PyTorch: the peer that the step is compared with on a GPU.

    python3 bench/peers/torch_step.py --config large --json FILE          times every mode and precision
    python3 bench/peers/torch_step.py --check --config demo               modes agree; TF32 is where it should be
    python3 bench/peers/torch_step.py --ceilings --config large --json F  also copy bandwidth and GEMM rates

One step: stratified prioritised draws by prefix sum over 2^20 priorities; transitions gathered by index from a bar table;
hindsight goals; spectral bounds; online(s), online(s'), target(s'); double DQN and projection; C51 blended with MSE,
CQL, diversity, exposure loss; backward; guarded global norm clip, fused AdamW, pruning mask, Polyak; priorities. The
formulas are those of vulpes/kernels/formulas, the sizes those of bench/training.hpp. Where a choice was open, the one
that makes PyTorch faster was taken: random numbers come from a table, next returns too, rows are 64 bytes wide, output
layers are padded to multiples of 8, n-step windows have one bar.

Modes: eager | graph: the eager step in a CUDA graph | compile: torch.compile of each part, in a CUDA graph | streams:
the same with the target's forward passes on a second stream | compile-all: one torch.compile over the whole step with
autotuning, in a CUDA graph.
Precisions of matrix products: tf32 | mixed: TF32 forward, FP32 backward | fp32.
Without a GPU everything runs on the CPU without graphs, to check the code; TF32 is then imitated by rounding operands.
"""

import argparse
import gc
import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import traceback
import warnings

import torch
import torch.nn.functional as F

CONFIGS = {  # batch, S, H1, H2, Hh (docs/kernels.md); one residual block
    "demo": (256, 32, 128, 64, 64),
    "small": (1024, 64, 256, 128, 128),
    "large": (8192, 64, 2048, 1024, 512),
}
MODES = ("eager", "graph", "compile", "streams", "compile-all")
PRECISIONS = ("tf32", "mixed", "fp32")
ACTIONS = (9, 3, 3)
Z, VMIN, VMAX = 51, -3.0, 5.0
SPACING = (VMAX - VMIN) / (Z - 1)
ROWS, ENVS, BARS, FEATURES, WINDOW = 1 << 20, 1024, 1 << 15, 24, 512
GAMMA, SCALE, BONUS, GAP_CLIP, SHARE, HORIZON = 0.95, 50.0, 0.5, 0.5, 0.5, 64
ALPHA, PRIORITY_EPSILON, PRIORITY_ONE = 0.5, 1e-3, float(1 << 20)
SURVIVAL, TRUNK_SCALE, BOUND = 0.9, 1 / 4, 2.0
CQL = DIVERSITY = AUXILIARY = 0.01
COST, SIGMA, TAU_LABEL, TAU_POLICY = 12e-4, 0.0085, 0.5, 0.1
RATE, BETAS, EPSILON, CLIP, TAU, SPARSITY = 1e-3, (0.9, 0.999), 1e-5, 10.0, 0.01, 0.5
SPIKE, SPIKE_FLOOR, NORM_RATE, WARMUP, BLEND, STEPS = 10.0, 10.0, 0.01, 1000, 1000, 20000
RANDOM_STEPS = 64
# Columns of a replay row; *_AFTER and what follows the account before the decision: exposure, unrealised, drawdown, growth.
BAR, ACTION, TERMINAL, OFFSET, REMAINING, HELD, HELD_AFTER, GOAL, BEFORE, AFTER, ROW_WIDTH = 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16


def padded(n):
    return -(-n // 8) * 8


# --- Matrix products -----------------------------------------------------------------------------------


def round_tf32(x):
    """x with 10 mantissa bits, to nearest: what a GPU does to the operands of a TF32 product."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@torch.library.custom_op("vulpes_peer::linear", mutates_args=())
def linear_op(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, relu: bool, tf32: bool) -> torch.Tensor:
    """x [B, in] w' [in, out] + b, with ReLU, in one cuBLASLt call; `tf32` holds for this product only."""
    if not x.is_cuda:
        y = torch.addmm(b, round_tf32(x), round_tf32(w).t()) if tf32 else torch.addmm(b, x, w.t())
        return y.relu_() if relu else y
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return torch._addmm_activation(b, x, w.t()) if relu else torch.addmm(b, x, w.t())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@linear_op.register_fake
def _(x, w, b, relu, tf32):
    return x.new_empty(x.shape[0], w.shape[0])


def _save(ctx, inputs, output):
    x, w, _, ctx.relu, _ = inputs
    ctx.save_for_backward(x, w, *([output] if ctx.relu else []))


def _backward(ctx, gradient):
    """dX, dW, db: plain products, in the precision that is set for all."""
    x, w, *y = ctx.saved_tensors
    if ctx.relu:
        gradient = torch.ops.aten.threshold_backward(gradient, y[0], 0)
    dx = gradient @ w if ctx.needs_input_grad[0] else None
    return dx, gradient.t() @ x, gradient.sum(0), None, None


linear_op.register_autograd(_backward, setup_context=_save)


# --- The network ---------------------------------------------------------------------------------------


def make_parameters(config, generator, device):
    """[weight, bias] of trunk 1, trunk 2, block, all heads' hidden layers, then each head's output (rows padded by 0)."""
    _, s, h1, h2, hh = CONFIGS[config]
    tensors = []
    for out, width, real in [(h1, s, h1), (h2, h1, h2), (h2, h2, h2), (4 * hh, h2, 4 * hh)] + [
        (padded(n * Z), hh, n * Z) for n in (1, *ACTIONS)
    ]:
        w = torch.randn(out, width, generator=generator) * (2 / width) ** 0.5
        w[real:] = 0
        tensors += [w, torch.zeros(out)]
    return [t.to(device).requires_grad_() for t in tensors]


class Network:
    """Forward pass in one precision; `fused`: products as the custom operator, else for the compiler to see."""

    def __init__(self, hh, precision, fused):
        self.hh, self.tf32, self.fused = hh, precision != "fp32", fused

    def layer(self, x, w, b, relu=True):
        if self.fused:
            return linear_op(x, w, b, relu, self.tf32)
        return F.relu(F.linear(x, w, b)) if relu else F.linear(x, w, b)

    def __call__(self, p, x, factor=None):
        """Hidden activations [B, 4 Hh] and raw outputs [B, A, Z] of each head; factor: m / q of the residual block."""
        h = self.layer(self.layer(x, p[0], p[1]), p[2], p[3])
        r = self.layer(h, p[4], p[5])
        h = h + r if factor is None else torch.addcmul(h, r, factor)
        if factor is not None:  # online(s): the trunk's gradient scaled, h itself unchanged
            h = torch.lerp(h.detach(), h, TRUNK_SCALE)
        hidden = self.layer(h, p[6], p[7])
        raw = []
        for i, n in enumerate((1, *ACTIONS)):
            part = hidden[:, i * self.hh : (i + 1) * self.hh]
            raw.append(self.layer(part, p[8 + 2 * i], p[9 + 2 * i], relu=False)[:, : n * Z].unflatten(1, (n, Z)))
        return hidden, raw


def branch_logits(raw):
    """V + A - mean A, [B, A_d, Z] each."""
    return [raw[0] + a - a.mean(1, keepdim=True) for a in raw[1:]]


# --- Parts of a step -----------------------------------------------------------------------------------


def unit_range(t, first, last):
    return ((t - first).float() / (last - first)).clamp(0, 1)


def account_inputs(account, held, gap):
    """[B, 5] from [B, 4], [B], [B] (formulas/account_state.hpp)."""
    held = torch.log1p(held) * (1 / math.log1p(WINDOW))
    return torch.stack([account[:, 0], 10 * account[:, 1], held, 10 * account[:, 2], 10 * gap], 1)


def state_vectors(table, bar, account, width):
    """[B, S]: features at the bar, the account's inputs, zeros."""
    return torch.cat([table[bar][:, :FEATURES], F.pad(account, (0, width - FEATURES - 5))], 1)


def sample(leaves, replay, table, next_returns, randoms, t):
    """Draws and transitions of a batch; every choice is a function of integers, so that all modes draw the same rows."""
    # [3, B]: place in the stratum, relabelled?, donor. By index_select, as an index of no dimension is read by the host.
    u = randoms.index_select(0, t.remainder(RANDOM_STEPS))[0]
    batch = u.shape[1]
    sums = torch.cumsum(leaves, 0)
    strata = torch.arange(batch, device=u.device) + u[0].double()
    wanted = (strata * (sums[-1].double() / batch)).long()
    rows = torch.searchsorted(sums, wanted, right=True).clamp(max=ROWS - 1)
    own = leaves[rows].float()
    weights = (own.min() / own) ** (0.4 + 0.6 * unit_range(t, 0, STEPS))

    r = replay[rows]  # [B, ROW_WIDTH]
    relabelled = u[1] < SHARE
    ahead = (u[2] * r[:, REMAINING].clamp(max=HORIZON)).long()
    donor = replay[(rows + ahead * ENVS) % ROWS]
    same = donor[:, OFFSET] == r[:, OFFSET] + ahead
    goal = torch.where(relabelled & same, donor[:, AFTER + 3], r[:, GOAL])
    before, after = r[:, BEFORE : BEFORE + 4], r[:, AFTER : AFTER + 4]
    peak = (before[:, 3] - torch.log1p(-before[:, 2])).clamp(min=0)
    reached = (peak < goal) & (after[:, 3] >= goal)
    reward = SCALE * (after[:, 3] - before[:, 3]) + BONUS * reached

    def gap(account):
        return (goal - account[:, 3]).clamp(-GAP_CLIP, GAP_CLIP)

    bar = r[:, BAR].long()
    width = table.shape[1]
    code = r[:, ACTION].long()
    return {
        "rows": rows,
        "leaves": leaves[rows],
        "relabelled": relabelled,
        "weights": weights,
        "s": state_vectors(table, bar, account_inputs(before, r[:, HELD], gap(before)), width),
        "next_s": state_vectors(table, bar + 1, account_inputs(after, r[:, HELD_AFTER], gap(after)), width),
        "actions": torch.stack([code // 9, code // 3 % 3, code % 3], 1),
        "reward": reward,
        "discount": GAMMA * (1 - r[:, TERMINAL]),
        "next_return": next_returns[bar],
        "exposure": before[:, 0],
    }


def bounded_matrices(p, hh):
    """Matrices whose spectral norm is bounded, of equal shapes together: [n, rows, columns] each, as views."""
    trunk = [p[i].detach()[None] for i in (0, 2, 4)]
    return [*trunk, p[6].detach().unflatten(0, (4, hh)), *(p[i].detach()[None] for i in (8, 10, 12, 14))]


def spectral(matrices, left):
    """One power iteration and the bound, in place (Miyato et al. 2018, algorithm 1); left [n, rows] each."""
    for w, u in zip(matrices, left):
        v = torch.bmm((u / u.norm(dim=1, keepdim=True)).unsqueeze(1), w).squeeze(1)
        sigma = v.norm(dim=1)
        u.copy_(torch.bmm(w, (v / sigma[:, None]).unsqueeze(2)).squeeze(2))
        w.mul_((BOUND / sigma).clamp(max=1)[:, None, None])


def spectral_dense(matrices, left):
    """The same as sums of products, which the compiler makes reductions of its own from."""
    for w, u in zip(matrices, left):
        u0 = u / u.norm(dim=1, keepdim=True)
        v = (w * u0[:, :, None]).sum(1)
        sigma = v.norm(dim=1)
        u.copy_((w * (v / sigma[:, None])[:, None, :]).sum(2))
        w.mul_((BOUND / sigma).clamp(max=1)[:, None, None])


def atoms_on(device):
    return torch.linspace(VMIN, VMAX, Z, device=device)


def project(p, reward, discount, atoms):
    """Projection of reward + discount z under p [B, Z] by indexed additions (Bellemare et al. 2017, algorithm 1)."""
    position = ((reward[:, None] + discount[:, None] * atoms).clamp(VMIN, VMAX) - VMIN) / SPACING
    lower = position.long().clamp(0, Z - 2)
    upper = p * (position - lower)
    m = torch.zeros_like(p).scatter_add_(1, lower, p - upper)
    return m.scatter_add_(1, lower + 1, upper)


def project_dense(p, reward, discount, atoms):
    """The same with a triangular kernel: one fused reduction for a compiler, without atomics."""
    position = ((reward[:, None] + discount[:, None] * atoms).clamp(VMIN, VMAX) - VMIN) / SPACING
    distance = position[:, None, :] - torch.arange(Z, device=p.device)[:, None]
    return (p[:, None, :] * (1 - distance.abs()).clamp(min=0)).sum(2)


def target_distribution(online_raw, target_raw, reward, discount, atoms, dense):
    """m [B, Z], the mean of the branches: double DQN, then the projection, which is linear."""
    p = 0
    for select, l in zip(branch_logits(online_raw), branch_logits(target_raw)):
        best = (F.softmax(select, 2) * atoms).sum(2).argmax(1)
        if dense:
            one_hot = best[:, None] == torch.arange(l.shape[1], device=l.device)
            l = (l * one_hot[:, :, None]).sum(1)
        else:
            l = l.gather(1, best[:, None, None].expand(-1, 1, Z)).squeeze(1)
        p = p + F.softmax(l, 1) / 3
    return (project_dense if dense else project)(p, reward, discount, atoms)


def losses(hidden, raw, m, batch, atoms, t, hh):
    """Total, the metrics [6] and delta [B]. Each branch needs three sums over atoms an action, and no gather."""
    n = m.shape[0]
    blend = unit_range(t, WARMUP, WARMUP + BLEND)
    y = (m * atoms).sum(1)
    entropy = -torch.special.xlogy(m, m).sum(1)
    ce = mse = gap = cql = 0
    for d, l in enumerate(branch_logits(raw)):
        taken = batch["actions"][:, d, None] == torch.arange(ACTIONS[d], device=m.device)
        log_p = F.log_softmax(l, 2)
        q = (log_p.exp() * atoms).sum(2)
        own = (q * taken).sum(1)
        ce = ce - ((m[:, None, :] * log_p).sum(2) * taken).sum(1) / 3
        mse = mse + (own - y) ** 2 / 3
        gap = gap + (own - y).abs() / 3
        cql = cql + (torch.logsumexp(q, 1) - own) / 3
        if d == 0:
            exposure_q = q
    levels = torch.linspace(-1, 1, ACTIONS[0], device=m.device)
    gain = levels * batch["next_return"][:, None] - COST * (levels - batch["exposure"][:, None]).abs()
    label = F.softmax(gain / (TAU_LABEL * SIGMA), 1)
    auxiliary = -(label * F.log_softmax(exposure_q / TAU_POLICY, 1)).sum(1)
    h = F.normalize(hidden[:, hh:].unflatten(1, (3, hh)), dim=2, eps=1e-6)
    cosines = [(h[:, d] * h[:, e]).sum(1) for d, e in ((0, 1), (0, 2), (1, 2))]
    diversity = sum(c * c for c in cosines) / 3
    rows = batch["weights"] * ((1 - blend) * mse + blend * ce)
    total = (rows + CQL * cql + AUXILIARY * auxiliary + DIVERSITY * diversity).sum() / n
    delta = ((1 - blend) * gap + blend * (ce - entropy).clamp(min=0)).detach()
    means = torch.stack([total, ce.mean(), mse.mean(), cql.mean(), auxiliary.mean(), diversity.mean()]).detach()
    return total, means, delta


def clip_and_guard(norms, bound_mean, t):
    """Divisor of the gradients and 1 where the update is skipped; follows the norm's running mean."""
    norm = torch.linalg.vector_norm(norms)
    bound = (SPIKE * bound_mean).clamp(min=SPIKE_FLOOR)
    skip = (~torch.isfinite(norm) | ((norm > bound) & (t[0] >= WARMUP + BLEND))).float()
    capped = torch.where(torch.isfinite(norm), torch.minimum(norm, bound), bound_mean)
    bound_mean.lerp_(capped, NORM_RATE)
    return (norm / CLIP).clamp(min=1), skip


def learning_rate(t):
    t = t[0]
    return RATE * ((t + 1).float() / 200).clamp(max=1) * (1 - 0.9 * unit_range(t, 200, STEPS))


def new_leaves(delta, batch):
    """Fixed point, as the tree of Vulpes holds; relabelled rows keep theirs."""
    units = ((delta + PRIORITY_EPSILON) ** ALPHA * PRIORITY_ONE).clamp(1, 2.0**32 - 256).long()
    return torch.where(batch["relabelled"] | ~torch.isfinite(delta), batch["leaves"], units)


# --- A program: one mode in one precision ----------------------------------------------------------------


class Program:
    """State of one training and its step; `run(n)` queues n steps."""

    def __init__(self, config, mode, precision, device, seed=1):
        self.mode, self.precision, self.device = mode, precision, torch.device(device)
        self.batch, self.width, _, _, self.hh = CONFIGS[config]
        self.notes = []
        whole = mode == "compile-all"
        self.split = mode == "streams"
        self.parts = self.split or mode == "compile"
        # The compiler may fuse and tune plain products, but only the operator has two precisions.
        self.network = Network(self.hh, precision, fused=not whole or precision == "mixed")
        self.dense = whole or self.parts
        g = torch.Generator().manual_seed(seed)
        self.online = make_parameters(config, g, device)
        self.target = [p.detach().clone() for p in self.online]
        self.first = [torch.zeros_like(p) for p in self.target]
        self.second = [torch.zeros_like(p) for p in self.target]
        self.weights = [i for i, p in enumerate(self.target) if p.dim() == 2]
        self.masks = []
        for i in self.weights:
            kept = torch.rand(self.target[i].shape, generator=g) >= SPARSITY
            self.masks.append(kept.float().to(device))
        self.left = [torch.randn(m.shape[:2], generator=g).to(device) for m in bounded_matrices(self.online, self.hh)]
        self.make_replay(g)
        tensor = lambda v, kind=torch.float32: torch.tensor(v, dtype=kind, device=device)
        self.t, self.adam_t = tensor([WARMUP + BLEND // 2], torch.int64), tensor(0.0)
        self.bound_mean = tensor(5.0)
        self.records = torch.zeros(1024, 7, device=device)
        self.atoms = atoms_on(device)
        self.side = torch.cuda.Stream() if self.split and self.device.type == "cuda" else None
        self.graph = None
        c = self.compiled
        self.f_sample = c(sample)
        self.f_spectral = c(spectral_dense if self.dense else spectral)
        self.f_target = c(self.make_target)
        self.f_loss = c(self.make_loss)
        self.f_forward = c(self.make_forward)
        self.f_losses = c(losses)
        self.f_clip = c(clip_and_guard)
        self.f_rate = c(learning_rate)
        self.f_leaves = c(new_leaves)
        self.call = self.step

    def make_replay(self, g):
        """Random rows in the places and ranges of real ones: [slot][env], windows of 512 bars."""
        r = torch.randn(ROWS, ROW_WIDTH, generator=g)
        slot, env = torch.arange(ROWS) // ENVS, torch.arange(ROWS) % ENVS
        r[:, OFFSET] = ((slot + env * 7) % WINDOW).float()
        r[:, REMAINING] = WINDOW - r[:, OFFSET]
        r[:, BAR] = ((slot + env * 31) % (BARS - 1)).float()
        r[:, ACTION] = torch.randint(0, 81, (ROWS,), generator=g).float()
        r[:, TERMINAL] = (torch.rand(ROWS, generator=g) < 0.002).float()
        r[:, HELD] = torch.randint(0, WINDOW, (ROWS,), generator=g).float()
        r[:, HELD_AFTER] = r[:, HELD] + 1
        r[:, GOAL] = 0.1
        for account in (BEFORE, AFTER):
            r[:, account] = r[:, account].clamp(-1, 1)
            r[:, account + 1] *= 0.01
            r[:, account + 2] = (r[:, account + 2].abs() * 0.01).clamp(max=0.5)
        r[:, BEFORE + 3] *= 0.03
        r[:, AFTER + 3] = r[:, BEFORE + 3] + 0.0085 * r[:, AFTER + 3]
        table = torch.zeros(BARS, self.width)
        table[:, :FEATURES] = torch.randn(BARS, FEATURES, generator=g).clamp(-5, 5)
        place = lambda x: x.to(self.device)
        self.replay, self.table = place(r), place(table)
        self.next_returns = place(0.0085 * torch.randn(BARS, generator=g))
        self.leaves = place((PRIORITY_ONE * (0.1 + 0.9 * torch.rand(ROWS, generator=g))).long())
        self.randoms = place(torch.rand(RANDOM_STEPS, 3, self.batch, generator=g))
        self.depth = place(torch.rand(RANDOM_STEPS, generator=g))

    def compiled(self, function):
        """The function compiled in modes that ask for it; what does not compile runs eagerly, and a note says so."""
        if not self.parts:
            return function
        chosen = [torch.compile(function, dynamic=False, fullgraph=True)]

        def call(*arguments):
            try:
                return chosen[0](*arguments)
            except Exception as error:  # any error of a compiler; an error of the function itself comes again
                if chosen[0] is function:
                    raise
                name = getattr(function, "__name__", "part")
                self.notes.append(f"{name} runs eagerly: {type(error).__name__}: {str(error)[:200]}")
                chosen[0] = function
                return function(*arguments)

        return call

    def make_target(self, online, target, s, reward, discount):
        with torch.no_grad():
            online_raw = self.network(online, s)[1]
            target_raw = self.network(target, s)[1]
            return target_distribution(online_raw, target_raw, reward, discount, self.atoms, self.dense)

    def make_forward(self, online, s, factor):
        return self.network(online, s, factor)

    def make_loss(self, online, s, factor, m, batch, t):
        hidden, raw = self.network(online, s, factor)
        return losses(hidden, raw, m, batch, self.atoms, t, self.hh)

    def step(self):
        with torch.no_grad():
            t = self.t
            batch = self.f_sample(self.leaves, self.replay, self.table, self.next_returns, self.randoms, t)
            self.f_spectral(bounded_matrices(self.online, self.hh), self.left)
            factor = (self.depth.index_select(0, t.remainder(RANDOM_STEPS)) < SURVIVAL).float() / SURVIVAL
            target_arguments = (self.online, self.target, batch["next_s"], batch["reward"], batch["discount"])
            if self.side is None:
                m = self.f_target(*target_arguments)
            else:
                self.side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.side):
                    m = self.f_target(*target_arguments)
        if self.split:  # two parts, so that only the losses wait for the target
            hidden, raw = self.f_forward(self.online, batch["s"], factor)
            if self.side is not None:
                torch.cuda.current_stream().wait_stream(self.side)
            total, means, delta = self.f_losses(hidden, raw, m, batch, self.atoms, t, self.hh)
        else:
            total, means, delta = self.f_loss(self.online, batch["s"], factor, m, batch, t)
        # Contiguous they are already, but the fused optimiser refuses others.
        gradients = [g.contiguous() for g in torch.autograd.grad(total, self.online)]
        with torch.no_grad():
            self.update(gradients, t)
            self.leaves.index_copy_(0, batch["rows"], self.f_leaves(delta, batch))
            self.records.index_copy_(0, t.remainder(1024), torch.cat([means, delta.mean()[None]])[None])
            self.t.add_(1)

    def update(self, gradients, t):
        """Clip, AdamW (no decay), mask, Polyak."""
        norms = torch.stack(torch._foreach_norm(gradients))
        divisor, skip = self.f_clip(norms, self.bound_mean, t)
        rate = self.f_rate(t)
        online = [p.detach() for p in self.online]
        self.adam_t.add_(1 - skip)
        if self.mode == "compile-all":  # for the compiler to fuse into one pass with mask and Polyak
            first_scale = (1 - skip) * rate / (1 - BETAS[0] ** self.adam_t)
            second_scale = 1 / (1 - BETAS[1] ** self.adam_t)
            keep = 1 - skip
            masks = dict(zip(self.weights, self.masks))
            for i, (p, g, m, v, target) in enumerate(zip(online, gradients, self.first, self.second, self.target)):
                g = torch.where(skip > 0, 0, g / divisor)
                new_m = m + keep * (1 - BETAS[0]) * (g - m)
                new_v = v + keep * (1 - BETAS[1]) * (g * g - v)
                new_p = p - first_scale * new_m / ((new_v * second_scale).sqrt() + EPSILON)
                if i in masks:
                    new_p = new_p * masks[i]
                m.copy_(new_m)
                v.copy_(new_v)
                p.copy_(new_p)
                target.copy_(target + TAU * keep * (new_p - target))
            return
        # The fused kernel divides by grad_scale and does nothing where found_inf is 1.
        torch._fused_adamw_(
            online, gradients, self.first, self.second, [], [self.adam_t] * len(online), lr=rate, beta1=BETAS[0],
            beta2=BETAS[1], weight_decay=0.0, eps=EPSILON, amsgrad=False, maximize=False, grad_scale=divisor, found_inf=skip,
        )  # fmt: skip
        torch._foreach_mul_([online[i] for i in self.weights], self.masks)
        torch._foreach_lerp_(self.target, online, TAU)

    def prepare(self):
        """Runs the first steps (compilation included) and records one where the mode asks for it."""
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        if self.mode == "compile-all":
            self.compile_whole()
        if self.device.type != "cuda" or self.mode == "eager":
            for _ in range(3):
                self.call()
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.call()
        torch.cuda.synchronize()

    def compile_whole(self):
        """One graph of the step; without the compiler's experimental and slow options if it fails with them."""
        torch._dynamo.config.trace_autograd_ops = True
        tuned = {"max_autotune": self.device.type == "cuda", "combo_kernels": True}
        self.call = torch.compile(self.step, dynamic=False, fullgraph=True, options=tuned)
        try:
            self.call()
        except Exception as error:
            self.notes.append(f"not autotuned: {type(error).__name__}: {str(error)[:200]}")
            torch._dynamo.reset()
            self.call = torch.compile(self.step, dynamic=False, fullgraph=True)
            self.call()

    def run(self, steps):
        if self.graph is not None:
            for _ in range(steps):
                self.graph.replay()
            return
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        for _ in range(steps):
            self.call()

    def milliseconds(self, steps):
        """Of one step, over `steps` queued together, fenced at both ends."""
        if self.device.type != "cuda":
            began = time.perf_counter()
            self.run(steps)
            return 1e3 * (time.perf_counter() - began) / steps
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        self.run(steps)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / steps

    def steps_done(self):
        return int(self.t.item()) - (WARMUP + BLEND // 2)

    def loss(self):
        """Of the last step."""
        return self.records[int(self.t.item() - 1) % 1024, 0].item()


class GivenUp(BaseException):
    """No Exception: compilers catch those, and autotuning takes one for a candidate that failed."""


def prepared(config, mode, precision, device, limit):
    """A program that ran and whose loss is a number, or the reason why there is none; given up after `limit` seconds."""

    def give_up(*_):
        raise GivenUp(f"not prepared in {limit:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit, 5)  # again: what is raised in a finaliser is lost
    try:
        torch._dynamo.reset()
        program = Program(config, mode, precision, device)
        program.prepare()
        if not torch.isfinite(torch.tensor(program.loss())):
            raise RuntimeError("the loss is not finite")
        return program, None
    except (Exception, GivenUp) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        traceback.print_exc(limit=4)
        return None, f"{type(error).__name__}: {str(error)[:400]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()


# --- Measurements --------------------------------------------------------------------------------------


def measure(config, modes, precisions, seconds, rounds, device, deadline, limit):
    """Rows of results: every program is timed in each round, in an order drawn anew."""
    results, programs = [], []
    for precision in precisions:
        for mode in modes:
            row = {"config": config, "mode": mode, "precision": precision}
            results.append(row)
            if time.monotonic() > deadline:
                row["skipped"] = "the deadline has passed"
                continue
            began = time.monotonic()
            program, row["error"] = prepared(config, mode, precision, device, min(limit, deadline - began))
            row["prepare_seconds"] = round(time.monotonic() - began, 1)
            print(f"{config} {mode} {precision}: prepared in {row['prepare_seconds']} s {row['error'] or ''}", flush=True)
            if program:
                row["notes"] = program.notes
                programs.append((program, row, []))
    for program, row, _ in programs:
        one = program.milliseconds(3)
        row["steps_a_round"] = max(1, round(1e3 * seconds / rounds / max(one, 1e-3)))
    for _ in range(rounds):
        for program, row, times in random.sample(programs, len(programs)):
            if row["error"] is None:
                try:
                    times.append(program.milliseconds(row["steps_a_round"]))
                except Exception as error:
                    row["error"] = f"while timed: {type(error).__name__}: {str(error)[:300]}"
    for program, row, times in programs:
        if row["error"] is None:
            middle = statistics.median(times)
            row |= {"median_ms": middle, "min_ms": min(times), "spread": (max(times) - min(times)) / middle}
            row["rounds"], row["loss"] = len(times), program.loss()
    return results


def product_shapes(config):
    """(name, m, n, k, forward?, times a step, flops without padding) of every matrix product: C [m, n] = A [m, k] B [k, n]."""
    b, s, h1, h2, hh = CONFIGS[config]
    layers = [("trunk1", h1, s, h1), ("trunk2", h2, h1, h2), ("block", h2, h2, h2), ("hidden", 4 * hh, h2, 4 * hh)]
    layers += [(f"output{n}", padded(n * Z), hh, n * Z) for n in (1, *ACTIONS)]
    shapes = {}
    for name, out, width, real in layers:
        products = [(f"{name} y", b, out, width, True, 3), (f"{name} dw", out, width, b, False, 1)]
        if name != "trunk1":  # no gradient of the states
            products.append((f"{name} dx", b, width, out, False, 1))
        for label, *rest in products:
            key = tuple(rest[:4])  # two branches have the same outputs
            if key in shapes:
                shapes[key][1] += rest[4]
            else:
                shapes[key] = [label, rest[4], 2 * b * real * width]
    return [(label, *key, times, flops) for key, (label, times, flops) in shapes.items()]


def time_call(call, device, repeats=20, rounds=5):
    """Median seconds of one call, many in one CUDA graph."""
    if device == "cpu":
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return statistics.median(times)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    times = []
    for _ in range(rounds + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / repeats)
    return statistics.median(times[1:])


def ceilings(config, device):
    """Copy bandwidth (read + written) and, for each product of the step, the library's best rate in FP32 and TF32."""
    count = (1 << 28) if device == "cuda" else (1 << 22)
    source, to = torch.empty(count, device=device).uniform_(), torch.empty(count, device=device)
    result = {"copy_bytes_a_second": 8 * count / time_call(lambda: to.copy_(source), device, repeats=4), "products": []}
    del source, to
    for label, m, n, k, forward, times, flops in product_shapes(config):
        row = {"name": label, "m": m, "n": n, "k": k, "forward": forward, "times": times, "flops": flops}
        # Operands as they lie in a step: y = x w', dx = dy w, dw = dy' x.
        a = torch.randn(k, m, device=device).t() if label.endswith("dw") else torch.randn(m, k, device=device)
        b = torch.randn(n, k, device=device).t() if forward else torch.randn(k, n, device=device)
        c, bias = torch.empty(m, n, device=device), torch.zeros(n, device=device)
        # Two ways into the library, whose choices of algorithm differ (cuBLAS and cuBLASLt).
        ways = [lambda: torch.mm(a, b, out=c), lambda: torch.addmm(bias, a, b, out=c)]
        for precision in ("fp32", "tf32"):
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            best = None
            for way in ways:
                try:
                    taken = time_call(way, device)
                    best = taken if best is None else min(best, taken)
                except Exception as error:
                    row.setdefault("errors", []).append(f"{precision}: {str(error)[:200]}")
            row[f"{precision}_flops_a_second"] = 2 * m * n * k / best if best else None
        result["products"].append(row)
    torch.backends.cuda.matmul.allow_tf32 = False
    return result


# --- Checks --------------------------------------------------------------------------------------------


def flat(tensors):
    return torch.cat([t.detach().flatten().double() for t in tensors])


def check_modes(config, modes, precisions, device, steps=8):
    """Loss and parameters of every mode against eager after some steps; differences are relative to the update."""
    good = True
    for precision in precisions:
        reference = {}
        for mode in ["eager", *(m for m in modes if m != "eager")]:
            torch._dynamo.reset()
            program = Program(config, mode, precision, device)
            start = flat(program.online)
            try:
                program.prepare()
                while program.steps_done() < steps:
                    program.run(1)
            except Exception as error:
                traceback.print_exc(limit=4)
                print(f"check {config} {mode} {precision}: failed: {type(error).__name__}: {str(error)[:300]}")
                good = False
                continue
            records = program.records[WARMUP + BLEND // 2 - 1024 :][:steps, 0].double()
            if mode == "eager":
                reference = {"losses": records, "online": flat(program.online), "target": flat(program.target)}
                reference["update"] = (reference["online"] - start).norm()
                print(f"check {config} eager {precision}: losses {records[0]:.6f} ... {records[-1]:.6f}")
                continue
            losses_differ = (records / reference["losses"] - 1).abs()
            first, loss = losses_differ[0].item(), losses_differ.max().item()
            change = ((flat(program.online) - reference["online"]).norm() / reference["update"]).item()
            averaged = ((flat(program.target) - reference["target"]).norm() / (TAU * reference["update"])).item()
            # The first step begins alike; later ones may draw a few other rows, since priorities round differently.
            # Adam's first steps have the size of the rate whatever the gradient's, so where that is near 0 they differ.
            limits = (1e-5, 5e-3, 0.1) if precision == "fp32" else (5e-4, 2e-2, 0.3)
            ok = first < limits[0] and loss < limits[1] and max(change, averaged / steps) < limits[2]
            good &= ok
            notes = "; ".join(program.notes)
            print(f"check {config} {mode} {precision}: loss {first:.1e}, later {loss:.1e}, parameters {change:.1e} of "
                  f"the update {'ok' if ok else 'WRONG'} {notes}", flush=True)  # fmt: skip
    return good


def check_precision(device):
    """Errors of y, dX and dW of one layer against float64: TF32's near 3e-4, FP32's far below 1e-5."""
    g = torch.Generator().manual_seed(5)
    make = lambda *shape: torch.randn(*shape, generator=g).to(device).requires_grad_()
    x, w, b = make(512, 256), make(384, 256), make(384)
    dy = torch.randn(512, 384, generator=g).to(device)
    good = True
    for name, tf32_forward, tf32_backward in (("mixed", True, False), ("fp32", False, False), ("tf32", True, True)):
        if name == "tf32" and device == "cpu":
            continue  # only the operator's own product imitates TF32
        for compiled in (False, True):
            torch._dynamo.reset()
            torch.backends.cuda.matmul.allow_tf32 = tf32_backward
            layer = lambda: linear_op(x, w, b, False, tf32_forward)
            try:
                y = (torch.compile(layer) if compiled else layer)()
                dx, dw = torch.autograd.grad(y, [x, w], dy)
            except Exception as error:
                print(f"check precision {name}: failed: {str(error)[:300]}")
                good = False
                continue
            exact = [x.double() @ w.double().t() + b.double(), dy.double() @ w.double(), dy.double().t() @ x.double()]
            errors = [((a.double() - e).norm() / e.norm()).item() for a, e in zip((y, dx, dw), exact)]
            expected = (tf32_forward, tf32_backward, tf32_backward)
            ok = all((5e-5 < e < 2e-3) if tf32 else e < 5e-6 for e, tf32 in zip(errors, expected))
            good &= ok
            print(f"check precision {name}{', compiled' * compiled}: y {errors[0]:.1e}, dX {errors[1]:.1e}, "
                  f"dW {errors[2]:.1e} {'ok' if ok else 'WRONG'}", flush=True)  # fmt: skip
    torch.backends.cuda.matmul.allow_tf32 = False
    return good


def check_formulas():
    """Both ways to project and both power iterations give the same; mass is kept."""
    g = torch.Generator().manual_seed(7)
    p = F.softmax(torch.randn(64, Z, generator=g), 1)
    r, d = 3 * torch.randn(64, generator=g), torch.rand(64, generator=g)
    atoms = atoms_on("cpu")
    a, b = project(p, r, d, atoms), project_dense(p, r, d, atoms)
    error = (a - b).abs().max().item() + (a.sum(1) - 1).abs().max().item()
    w, u = torch.randn(2, 40, 30, generator=g), torch.randn(2, 40, generator=g)
    w2, u2 = w.clone(), u.clone()
    for _ in range(200):
        spectral([w], [u])
        spectral_dense([w2], [u2])
    error = max(error, (w - w2).abs().max().item(), (torch.linalg.matrix_norm(w, 2) - BOUND).abs().max().item())
    print(f"check formulas: {error:.1e} {'ok' if error < 1e-4 else 'WRONG'}")
    return error < 1e-4


def check_reference(device):
    """Target, loss, delta and gradient of one batch of `demo` against tests/reference (float64, by JAX on the host)."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "reference"))
    try:
        import numpy as np
        import reference
    except ImportError as error:
        print(f"check reference: left out: {error}")
        return True
    torch.backends.cuda.matmul.allow_tf32 = False
    program = Program("demo", "eager", "fp32", device)
    with torch.no_grad():  # a target that differs, biases that are not 0
        for i, p in enumerate(program.online):
            if i % 2:
                p[: program.masks[i // 2].any(1).sum()] = 0.1  # not in rows of padding
        program.target = [p * 0.9 for p in program.online]
        batch = sample(program.leaves, program.replay, program.table, program.next_returns, program.randoms, program.t)
    factor = torch.full((1,), 1 / SURVIVAL, device=device)
    m = program.make_target(program.online, program.target, batch["next_s"], batch["reward"], batch["discount"])
    total, _, delta = program.make_loss(program.online, batch["s"], factor, m, batch, program.t)
    gradient = torch.autograd.grad(total, program.online)

    def named(tensors):
        t = [x.detach().double().cpu().numpy() for x in tensors]
        names = {"trunk.0.weight": t[0], "trunk.0.bias": t[1], "trunk.1.weight": t[2], "trunk.1.bias": t[3]}
        names |= {"block.0.weight": t[4], "block.0.bias": t[5], "hidden.bias": t[7]}
        for i, head in enumerate(reference.HEADS):
            names[f"hidden.{head}.weight"] = t[6][i * program.hh : (i + 1) * program.hh]
            names[f"output.{head}.weight"] = t[8 + 2 * i][: reference.HEAD_ROWS[i] * Z]
        names["output.bias"] = np.concatenate([t[9 + 2 * i][: n * Z] for i, n in enumerate(reference.HEAD_ROWS)])
        return names

    wide = lambda key: batch[key].double().cpu().numpy()
    theirs = {"states": wide("s"), "next_states": wide("next_s"), "rewards": wide("reward"), "discounts": wide("discount")}
    theirs |= {"weights": wide("weights"), "next_returns": wide("next_return"), "exposures": wide("exposure")}
    theirs["actions"] = batch["actions"].cpu().numpy()
    scalars = {"factors": np.array([1 / SURVIVAL]), "trunk_scale": TRUNK_SCALE, "spike": 1.0, "nan": 0.0, "blend": 0.5,
               "cql": CQL, "auxiliary": AUXILIARY, "diversity": DIVERSITY, "cost": COST, "risk": 0.0, "sd": SIGMA,
               "label_temperature": TAU_LABEL, "temperature": TAU_POLICY}  # fmt: skip
    options = {"double_dqn": True, "mean": True, "next_action": np.full((program.batch, 3), -1)}
    right, right_gradient = reference.loss_and_gradient(
        named(program.online), named(program.target), theirs, np.array([VMIN, VMAX]), scalars, options, atoms=Z
    )
    mean_loss = float(right["loss/rows"].mean() + DIVERSITY * right["loss/diversity"].mean())
    host = lambda x: x.detach().double().cpu().numpy()
    differ = lambda a, b: float(np.abs(a - b).max() / np.abs(b).max())
    errors = {
        "loss": abs(total.item() / mean_loss - 1),
        "target": differ(host(m), right["target"][:, 0]),
        "delta": differ(host(delta), right["delta"]),
        "gradient": max(differ(g, right_gradient[name]) for name, g in named(gradient).items()),
    }
    ok = max(errors.values()) < 2e-5
    print("check reference: " + ", ".join(f"{k} {v:.1e}" for k, v in errors.items()) + (" ok" if ok else " WRONG"))
    return ok


def environment(device):
    root = pathlib.Path(__file__).resolve().parents[2]

    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return "unknown"

    found = {"torch": torch.__version__, "cuda": torch.version.cuda, "commit": output("git", "-C", str(root), "describe", "--always", "--dirty")}
    found["tf32_override"] = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        found["driver"] = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    else:
        found["device"] = "cpu"
    return found


def comma(choices):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(choices)}")
        return names

    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=comma(CONFIGS), default=["small", "large"], help="some of demo,small,large")
    parser.add_argument("--modes", type=comma(MODES), default=list(MODES), help="some of " + ",".join(MODES))
    parser.add_argument("--precisions", type=comma(PRECISIONS), default=["mixed"], help="some of " + ",".join(PRECISIONS))
    parser.add_argument("--seconds", type=float, default=2, help="measured time of each mode and precision")
    parser.add_argument("--rounds", type=int, default=20, help="turns that this time is cut into")
    parser.add_argument("--deadline", type=float, default=480, help="seconds after which nothing more is compiled")
    parser.add_argument("--limit", type=float, default=150, help="seconds after which a mode's compilation is given up")
    parser.add_argument("--check", action="store_true", help="check instead of measuring")
    parser.add_argument("--ceilings", action="store_true", help="also measure copy bandwidth and GEMM rates")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.check:
        good = check_formulas() & check_precision(device) & check_reference(device)
        for config in options.config:
            good &= check_modes(config, options.modes, options.precisions, device)
        return 0 if good else 1

    deadline = time.monotonic() + options.deadline
    result = {"environment": environment(device), "ceilings": {}, "rows": []}

    def write():  # after every part: a run that is stopped leaves what it has
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(result, indent=1) + "\n")

    for config in options.config:
        if options.ceilings:
            try:
                result["ceilings"][config] = ceilings(config, device)
            except Exception as error:
                result["ceilings"][config] = {"error": str(error)[:300]}
            write()
        result["rows"] += measure(
            config, options.modes, options.precisions, options.seconds, options.rounds, device, deadline, options.limit
        )
        write()
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    print(f"{'config':8}{'mode':13}{'precision':11}{'median ms':>10}{'min':>9}{'spread':>8}")
    for r in result["rows"]:
        name = f"{r['config']:8}{r['mode']:13}{r['precision']:11}"
        if "median_ms" in r:
            print(f"{name}{r['median_ms']:10.4f}{r['min_ms']:9.4f}{100 * r['spread']:7.1f}% {'; '.join(r['notes'])}")
        else:
            print(f"{name}  {r.get('skipped') or r['error']}")
    return 0 if any("median_ms" in r for r in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
