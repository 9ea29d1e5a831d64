"""Random kills over a whole run, and nothing lost: ``python tests/chaos.py [--seconds 60] [--seed 0]``.

Carries out tests/mini.py's recipe from nothing again and again, killing it (SIGKILL or SIGINT, the process alone
or its whole family) at random moments, until the time is up; then lets it finish and compares every content hash
with a run that nobody disturbed. Prints the kills and a closing line; exit code 1 when a hash differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mini  # noqa: E402

CHANGES = ["train.batch_tokens=256", "train.micro_batch=2", "train.resume_every=0.5"]


def command(recipe: Path, out: Path) -> list[str]:
    gristmill = [sys.executable, "-m", "gristmill.recipes.runner.cli"]
    return [*gristmill, "run", str(recipe), *CHANGES, "--name", "mini", "--out", str(out)]


def kill(process: subprocess.Popen, rng: random.Random) -> str:
    """End the run in one of the ways a run ends; returns which."""
    how = rng.choice(["SIGKILL", "SIGKILL family", "SIGINT", "SIGTERM"])
    if how == "SIGKILL family":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.send_signal(signal.Signals[how])
    process.wait()
    return how


def stage(out: Path) -> str:
    partial = sorted(p.name.split("-")[0] for p in (out / "store").glob("*.partial"))
    return partial[0] if partial else "between stages"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    rng, kills, finished = random.Random(options.seed), {}, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recipe = mini.write(folder)
        began = time.time()
        subprocess.run(command(recipe, folder / "calm"), check=True, capture_output=True)
        whole = time.time() - began
        calm = {key: manifest["content"] for key, manifest in mini.artefacts(folder / "calm").items()}
        end, out, round_ = time.time() + options.seconds, folder / "0", 0
        while time.time() < end:
            process = subprocess.Popen(
                command(recipe, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
            try:
                # long enough to get past the imports, short enough for many kills: every stage gets its share
                process.wait(timeout=rng.uniform(0.12, 0.3) * whole)
                assert process.returncode == 0, process.stderr.read().decode()
                finished += 1
                compare(calm, out)
                round_ += 1
                out = folder / str(round_)
            except subprocess.TimeoutExpired:
                where = stage(out)
                key = f"{where}, {kill(process, rng)}"
                kills[key] = kills.get(key, 0) + 1
        subprocess.run(command(recipe, out), check=True, capture_output=True)
        compare(calm, out)
    for key, count in sorted(kills.items()):
        print(f"{count:4d}  {key}")
    print(f"{sum(kills.values())} kills, {finished + 1} runs finished, every content hash as in the undisturbed run")
    return 0


def compare(calm: dict[str, str], out: Path) -> None:
    ours = {key: manifest["content"] for key, manifest in mini.artefacts(out).items()}
    different = [key for key in calm if ours.get(key) != calm[key]]
    if different:
        sys.exit(f"content differs after kills: {', '.join(different)}")


if __name__ == "__main__":
    sys.exit(main())
