"""kill -9 at 20 random moments of one run: it ends with the bits of the uninterrupted run."""

import random
import shutil
import signal
import time

from vulpes_run import FolderTest, main, parameter_hash

KILLS = 20
STEPS = 4000
# A checkpoint every 25 steps, so that a kill costs little and many fall into the writing of one.
SETTINGS = {"train.steps": STEPS, "train.epoch_steps": 25, "agent.n_step": 2, "optimiser.spectral_trunk": 3,
            "synthetic.validation_bars": 256}  # fmt: skip


class Kill(FolderTest):
    def test_twenty_kills(self):
        draw = random.Random(20)
        whole = self.run_in("whole")
        began = time.monotonic()
        process = whole.start(SETTINGS)
        while process.poll() is None and not whole.step():
            time.sleep(0.001)
        startup = time.monotonic() - began
        process.communicate()
        self.assertEqual(process.returncode, 0)
        duration = time.monotonic() - began

        run = self.run_in("killed")
        left_by_kills, steps, kills = 0, [], 0
        for kill in range(KILLS):
            if not (run.path / "config.toml").exists():  # killed before the run began
                shutil.rmtree(run.path, ignore_errors=True)
                process = run.start(SETTINGS)
            else:
                process = run.start()
            # Uniform over starting up and this kill's share of what remains to be trained.
            remaining = (duration - startup) * (1 - run.step() / STEPS)
            delay = draw.uniform(0, startup + 2 * remaining / (KILLS - kill + 1))
            deadline = time.monotonic() + delay
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.001)
            if kill % 4 == 3:  # these wait for the next checkpoint and strike while it is written
                deadline = time.monotonic() + 5
                while time.monotonic() < deadline and process.poll() is None and not temporary(run):
                    pass
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                kills += 1
                left_by_kills += 1 if temporary(run) else 0
                steps.append(run.step())
        self.assertGreaterEqual(kills, KILLS * 3 // 4, "the run ended before most kills")
        self.assertGreater(steps[-1], 0)
        run.resume()
        self.assert_same_result(whole, run)
        self.assertEqual([f for f in run.files() if f.endswith(".tmp")], [], "temporary files are left")
        print(f"{kills} kills after checkpoints {steps}, {left_by_kills} of them in the writing of a file; "
              f"parameters {parameter_hash(run.newest())} as uninterrupted ({duration:.1f} s)")  # fmt: skip


def temporary(run):
    """Files that are being written."""
    return list(run.path.rglob("*.tmp"))


if __name__ == "__main__":
    main()
