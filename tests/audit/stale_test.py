#!/usr/bin/env python3
"""Says when an audit in docs/measurements/ was made of other sources than these.

Usage: stale_test.py ROOT CMAKE
Exit code 77 (skipped, with a warning) when an audit-*.json there is stale or there is none, 1 when one cannot be read.
"""
import json
import subprocess
import sys
from pathlib import Path


def main(root, cmake):
    script = root / "cmake" / "source_hash.cmake"
    now = subprocess.run([cmake, f"-DSOURCE={root}", "-P", str(script)], check=True, capture_output=True,
                         text=True).stdout.strip()
    if len(now) != 64:
        print(f"{script} printed '{now}', which is no hash", file=sys.stderr)
        return 1
    reports = sorted((root / "docs" / "measurements").glob("audit-*.json"))
    stale = False
    for path in reports:
        report = json.loads(path.read_text())
        if report["sources"] != now:
            stale = True
            print(f"warning: {path.name} is of {report['date']}, commit {report['commit']}: the sources have changed since")
        if report["broken"]:
            print(f"warning: {path.name} has broken rows")
    if not reports:
        print("warning: docs/measurements/ holds no audit-*.json")
    return 77 if stale or not reports else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
