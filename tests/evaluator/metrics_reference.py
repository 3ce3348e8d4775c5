#!/usr/bin/env python3
"""Metrics of random accounts against a direct computation with Python's statistics module.

Usage: metrics_reference.py PROGRAM, the program being metrics_of_fills. Trades are accounted here by average cost,
fill by fill, where the program adds up cash flows; figures must agree to 1e-9.
"""
import json
import math
import random
import statistics
import subprocess
import sys

ACCOUNTS = 50
TOLERANCE = 1e-9
FLOOR = 0.2  # ruin: equity as a fraction of the start


class Position:
    """One trade by average cost: profit realised so far, fees apart."""

    def __init__(self, units, price, fee):
        self.units, self.cost, self.profit = units, price, -fee

    def fill(self, units, price, fee):
        """Units within the position: an increase, a reduction or the close."""
        if units * self.units > 0:
            self.cost = (self.cost * self.units + price * units) / (self.units + units)
        else:
            self.profit += (price - self.cost) * -units
        self.units += units
        self.profit -= fee


def random_walk(rng, start, bars, reckless):
    """An account's bars as (equity, exposure, units, price, fee), its closed trades' profits, its open trades."""
    price = rng.uniform(5, 500)
    cash, units, rows = start, 0.0, []
    position, closed, equity = None, [], start
    fee_rate = rng.choice([-0.0004, 0.0, 0.001])
    for _ in range(bars):
        traded, fill_price, fee = 0.0, 0.0, 0.0
        if rng.random() < 0.4:
            level = rng.choice([-1, -0.5, 0, 0.5, 1]) * (8 if reckless else 1)
            traded = rng.choice([1, 0.5]) * (level * equity / price - units)
        if traded:
            fill_price = price * math.exp(rng.gauss(0, 0.005))
            fee = abs(traded) * fill_price * fee_rate
            cash -= traded * fill_price + fee
            before, units = units, units + traded
            if before == 0:
                position = Position(traded, fill_price, fee)
            elif before * units > 0:
                position.fill(traded, fill_price, fee)
            else:
                share = abs(before / traded)
                position.fill(-before, fill_price, fee * share)
                closed.append(position.profit)
                position = Position(units, fill_price, fee * (1 - share)) if units else None
        price *= math.exp(rng.gauss(0.0002, 0.03))
        equity = cash + units * price
        if equity <= FLOOR * start:
            lost = FLOOR * start - cash  # what the position fetches
            if position:
                closed.append(position.profit - position.cost * position.units + lost)
            rows.append((FLOOR * start, 0.0, traded, fill_price, fee))
            return rows, closed, 0
        rows.append((equity, units * price / equity, traded, fill_price, fee))
    return rows, closed, 1 if units else 0


def reference(walks, start, year):
    """Metrics as evaluator/metrics.hpp defines them; None: absent."""
    returns, exposures, turnover, fees, profits, open_trades = [], [], [], [], [], 0
    curve = [start]
    for rows, closed, still_open in walks:
        scale, before = curve[-1] / start, start
        for equity, exposure, units, price, fee in rows:
            returns.append(equity / before - 1)
            turnover.append(abs(units) * price / before)
            exposures.append(exposure)
            fees.append(fee * scale)
            curve.append(equity * scale)
            before = equity
        profits += [p * scale for p in closed]
        open_trades += still_open
    n = len(returns)
    mean, deviation = statistics.fmean(returns), statistics.stdev(returns)
    downside = math.sqrt(math.fsum(min(r, 0) ** 2 for r in returns) / n)
    drawdown, length = 0.0, 0
    for i in range(len(curve)):
        depth = curve[i] / max(curve[: i + 1]) - 1
        if depth < drawdown:
            drawdown = depth
            peak = max(range(i + 1), key=lambda j: (curve[j], j))
            after = [j for j in range(i, len(curve)) if curve[j] >= curve[peak]]
            length = (after[0] if after else len(curve) - 1) - peak
    lowest = sorted(returns)[: int((n - 1) * 0.05) + 1]
    annual = (curve[-1] / start) ** (year / n) - 1
    losses = -math.fsum(p for p in profits if p < 0)
    return {
        "total_return": curve[-1] / start - 1,
        "annual_return": annual,
        "annual_volatility": deviation * math.sqrt(year),
        "sharpe": mean / deviation * math.sqrt(year),
        "sortino": mean / downside * math.sqrt(year),
        "calmar": annual / -drawdown,
        "max_drawdown": drawdown,
        "max_drawdown_bars": length,
        "hit_rate": sum(p > 0 for p in profits) / len(profits) if profits else None,
        "profit_factor": math.fsum(p for p in profits if p > 0) / losses if losses else None,
        "turnover": statistics.fmean(turnover) * year,
        "mean_exposure": statistics.fmean(exposures),
        "mean_absolute_exposure": statistics.fmean(map(abs, exposures)),
        "trades": len(profits),
        "open_trades": open_trades,
        "fees_paid": math.fsum(fees),
        "value_at_risk_95": statistics.quantiles(returns, n=20, method="inclusive")[0],
        "expected_shortfall_95": statistics.fmean(lowest),
        "growth_per_bar": math.log(curve[-1] / start) / n,
    }


def main(program):
    rng = random.Random(7)
    text, wanted, ruins = [], [], 0
    for account in range(ACCOUNTS):
        year, start = rng.choice([252, 6552, 12096]), rng.choice([1.0, 1e5])
        walks = [random_walk(rng, start, rng.randint(30, 400), account % 5 == 4) for _ in range(rng.randint(1, 4))]
        text.append(f"account {year}")
        for rows, _, _ in walks:
            ruins += rows[-1][0] == FLOOR * start
            text.append(f"walk {start!r}")
            text += ["bar " + " ".join(repr(x) for x in row) for row in rows]
        wanted.append(reference(walks, start, year))
    assert ruins, "no account was ruined: the test misses that case"
    result = subprocess.run([program], input="\n".join(text), capture_output=True, text=True, check=True)
    got = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(got) == ACCOUNTS, f"{len(got)} accounts came back"

    failures, largest = 0, 0.0
    for account, (have, want) in enumerate(zip(got, wanted)):
        if list(have) != list(want):
            sys.exit(f"names differ: {list(have)}")
        for name, value in want.items():
            if value is None or have[name] is None:
                wrong = value is not have[name]
            else:
                error = abs(have[name] - value) / max(1.0, abs(value))
                largest = max(largest, error)
                wrong = not error <= TOLERANCE
            if wrong:
                failures += 1
                print(f"account {account}: {name} is {have[name]}, reference {value}")
    print(f"{ACCOUNTS} accounts, {ruins} ruined walks, largest error {largest:.1e}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
