#!/usr/bin/env python3
"""Vulpes' training step and PyTorch's in turns on one device, in one run: medians, and their ratio with its interval.

    python3 bench/peers/interleave.py --config large --mode compile,streams --json FILE -- \\
        build/cuda/bin/bench_step --serve large_everything

Each round runs ours once and every mode of the peer once (bench/peers/torch_step.py), in an order drawn anew, `--steps`
steps each. The ratio is the fastest mode's median over ours, its 95 % interval from rounds drawn with replacement.
Without a command only the peer runs, without torch only ours; the JSON says what was left out.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import torch_step
except ImportError as missing:
    torch_step, no_torch = None, str(missing)


class Served:
    """A program that answers `run N` with one line of JSON (bench_step --serve)."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self.read(lambda line: line.startswith("ready "))

    def read(self, wanted):
        for line in self.process.stdout:
            if wanted(line):
                return line.strip()
        raise RuntimeError(f"{self.process.args[0]} ended with exit code {self.process.wait()}")

    def milliseconds(self, steps):
        self.process.stdin.write(f"run {steps}\n")
        self.process.stdin.flush()
        answer = json.loads(self.read(lambda line: line.startswith("{")))
        if answer["steps"] != steps:
            raise RuntimeError(f"{steps} steps were asked for, {answer['steps']} were run")
        return answer["milliseconds"]

    def close(self):
        try:
            self.process.communicate("quit\n", timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()


def summary(times):
    middle = statistics.median(times)
    return {"median_ms": middle, "min_ms": min(times), "spread": (max(times) - min(times)) / middle, "times_ms": times}


def ratio(ours, peer, draws=2000):
    """Median of the peer's times over the median of ours, and the 95 % interval; the rounds are pairs."""
    generator = random.Random(1)
    rounds = range(len(ours))
    drawn = []
    for _ in range(draws):
        chosen = generator.choices(rounds, k=len(ours))
        drawn.append(statistics.median([peer[i] for i in chosen]) / statistics.median([ours[i] for i in chosen]))
    drawn.sort()
    return {
        "peer_over_ours": statistics.median(peer) / statistics.median(ours),
        "low": drawn[int(0.025 * draws)],
        "high": drawn[int(0.975 * draws)],
    }


def run(options, command):
    result = {"config": options.config, "precision": options.precision, "steps": options.steps, "left_out": []}
    runners = {}  # name: what has milliseconds(steps)
    if command:
        try:
            runners["ours"] = Served(command)
            result["ours_is"] = {"command": command, "ready": runners["ours"].ready}
        except (OSError, RuntimeError) as error:
            result["left_out"].append(f"ours: {error}")
    else:
        result["left_out"].append("ours: no command was given")
    if torch_step:
        device = "cuda" if torch_step.torch.cuda.is_available() else "cpu"
        result["environment"] = torch_step.environment(device)
        if options.ceilings:
            try:
                result["ceilings"] = torch_step.ceilings(options.config, device)
            except Exception as error:
                result["left_out"].append(f"ceilings: {type(error).__name__}: {str(error)[:300]}")
        result["peers"] = {}
        for mode in options.mode:
            program, error = torch_step.prepared(options.config, mode, options.precision, device, options.limit)
            if program:
                runners[mode] = program
                result["peers"][mode] = {"notes": program.notes}
            else:
                result["left_out"].append(f"{mode}: {error}")
            print(f"{mode}: {error or 'prepared'}", flush=True)
    else:
        result["left_out"].append(f"the PyTorch peer: {no_torch}")

    times = {name: [] for name in runners}
    for turn in range(options.rounds + 1):  # the first is not counted
        for name in random.sample(list(runners), len(runners)):
            try:
                one = runners[name].milliseconds(options.steps)
            except Exception as error:
                result["left_out"].append(f"{name}: while timed: {type(error).__name__}: {str(error)[:300]}")
                del runners[name], times[name]
                continue
            if turn > 0:
                times[name].append(one)
    if "ours" in runners:
        runners["ours"].close()
    for name, values in times.items():
        if name == "ours":
            result["ours"] = summary(values)
        else:
            result["peers"][name] |= summary(values)
    best = min((n for n in times if n != "ours"), key=lambda n: statistics.median(times[n]), default=None)
    result["best_peer"] = best
    if best and "ours" in times:
        result["ratio"] = ratio(times["ours"], times[best])
    return result


def main():
    arguments, command = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=("demo", "small", "large"), required=True)
    parser.add_argument("--mode", type=lambda text: text.split(","), default=["compile"], help="modes of torch_step.py")
    parser.add_argument("--precision", choices=("tf32", "mixed", "fp32"), default="mixed")
    parser.add_argument("--steps", type=int, default=50, help="steps of each in a round")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--limit", type=float, default=150, help="seconds after which a mode's compilation is given up")
    parser.add_argument("--ceilings", action="store_true", help="also measure copy bandwidth and GEMM rates")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(arguments)
    unknown = [m for m in options.mode if torch_step and m not in torch_step.MODES]
    if unknown or options.steps < 1 or options.rounds < 1:
        parser.error(f"no mode {', '.join(unknown)}" if unknown else "--steps and --rounds are 1 or more")
    result = run(options, command)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    for line in result["left_out"]:
        print(f"left out: {line}")
    for name, r in [("ours", result.get("ours")), *result.get("peers", {}).items()]:
        if r and "median_ms" in r:
            print(f"{name:12} {r['median_ms']:9.4f} ms, min {r['min_ms']:.4f}, spread {100 * r['spread']:.1f} %")
    if "ratio" in result:
        r = result["ratio"]
        print(f"{result['best_peer']} / ours: {r['peer_over_ours']:.3f} ({r['low']:.3f} to {r['high']:.3f})")
    return 0 if "ours" in result or result["best_peer"] else 1


if __name__ == "__main__":
    sys.exit(main())
