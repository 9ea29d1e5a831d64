"""A recipe small enough to carry out in seconds, on text made here: what the tests by promise run."""

from __future__ import annotations

import json
import random
from pathlib import Path

import yaml

WORDS = """
river stone market engine garden letter winter mountain teacher signal harbour paper window silver forest morning
question answer number circle pattern bridge village thunder kitchen doctor planet copper shadow music ticket island
cotton hammer camera bottle candle desert flower guitar helmet insect jacket kettle ladder magnet
""".split()  # noqa: SIM905
HAN = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分"
    "对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
)


def prose(rng: random.Random, words: int) -> str:
    text = [rng.choice(WORDS) for _ in range(words)]
    for k in range(9, words, 10):
        text[k] += "."
    return " ".join(text).capitalize() + "."


def code(rng: random.Random, functions: int) -> str:
    lines = []
    for k in range(functions):
        name, arg = rng.choice(WORDS), rng.choice(WORDS)
        lines += [
            f"def {name}_{k}({arg}):",
            f'    """Return the {rng.choice(WORDS)}."""',
            f"    return {arg} + {rng.randint(0, 99)}",
            "",
        ]
    return "\n".join(lines)


def documents(seed: int = 5) -> dict[str, list[str]]:
    """source -> texts: exact and near duplicates, short and long documents among them."""
    rng = random.Random(seed)
    english = [prose(rng, rng.randint(30, 160)) for _ in range(120)]
    english += english[:6] + [text + " Again and again." for text in english[6:12]] + ["Too short."] * 3
    chinese = ["".join(rng.choice(HAN) for _ in range(rng.randint(20, 80))) + "。" for _ in range(80)]
    chinese += chinese[:5]
    python = [code(rng, rng.randint(2, 12)) for _ in range(40)] + [code(rng, 60)]
    return {"english": english, "chinese": chinese, "python": python}


RECIPE = {
    "name": "mini",
    "seed": 11,
    "engine": {"partitions": 1},
    "sources": {
        "english": {
            "from": {"kind": "files", "path": "raw/english.jsonl"},
            "read": {"jsonl": "text"},
            "domain": "english",
            "lang": "en",
            "licence": "CC0-1.0",
        },
        "chinese": {
            "from": {"kind": "files", "path": "raw/chinese.txt"},
            "read": "lines",
            "domain": "chinese",
            "lang": "zh",
            "licence": "CC0-1.0",
        },
        "python": {
            "from": {"kind": "files", "path": "raw/python"},
            "read": "files",
            "domain": "code",
            "lang": "py",
            "licence": "CC0-1.0",
        },
    },
    "corpus": {"part_mb": 0.02},
    "clean": {"filters": [{"length": {"min_chars": 15}}]},
    "dedup": {"minhash": {}},
    "score": {"heuristics": {}},
    "split": {"validation": 0.1},
    "tokenizer": {"kind": "train", "vocab_size": 400},
    "phases": {
        "p1": {"order": "shuffle"},
        "p2": {"order": "shuffle"},
        "p3": {"order": "curriculum"},
        "p4": {"order": "curriculum"},
        "p5": {"order": "curriculum"},
    },
    "mix": {
        "english": ["all", "all", "top .50", "top .30", "top .10"],
        "chinese": ["rand .5", "top .4", "top .2", "none", "none"],
        "python": ["none", "top .4", "top .3", "top .2", "x1.5"],
    },
    "pack": {"seq_len": 64, "shard_rows": 100},
    "model": {"layers": 1, "hidden": 32, "mlp": 64, "heads": 2, "kv_heads": 1, "logit_softcap": 30},
    "train": {
        "batch_tokens": 1024,
        "precision": "fp32",
        "optimizer": {"kind": "adamw", "lr": "3e-3"},
        "schedule": {"kind": "wsm", "warmup": 0.1},
        "checkpoints": 6,
        "threads": 1,
    },
    "merge": {"kind": "wsm", "shape": "linear", "last": 3},
    "eval": [{"name": "raw", "of": "pretrain", "suite": "bpb"}, {"name": "merged", "of": "merge", "suite": "bpb"}],
}


def write(folder: Path, **changes) -> Path:
    """Write raw files and ``mini.yaml`` under ``folder``; ``changes`` replace top-level blocks. Returns the recipe."""
    raw = folder / "raw"
    (raw / "python").mkdir(parents=True, exist_ok=True)
    texts = documents()
    (raw / "english.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts["english"]), "utf-8")
    (raw / "chinese.txt").write_text("\n".join(texts["chinese"]) + "\n", "utf-8")
    for k, text in enumerate(texts["python"]):
        (raw / "python" / f"module_{k}.py").write_text(text, "utf-8")
    recipe = folder / "mini.yaml"
    recipe.write_text(yaml.safe_dump({**RECIPE, **changes}, allow_unicode=True, sort_keys=False), "utf-8")
    return recipe


def artefacts(out: Path, run: str = "mini") -> dict[str, dict]:
    """stage -> manifest of a finished run."""
    stages = json.loads((out / run / "run.json").read_text("utf-8"))["stages"]
    return {
        key: json.loads((out / "store" / name / "manifest.json").read_text("utf-8")) for key, name in stages.items()
    }
