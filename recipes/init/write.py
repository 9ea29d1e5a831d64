"""The recipe for a folder of text, as YAML with the guesses written beside what was guessed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import atomic
from gristmill.recipes.init.language import UNKNOWN
from gristmill.recipes.init.scan import Found, scan
from gristmill.recipes.init.sizes import Sizes, sizes


def init(data: Path, name: str | None, out: Path | None) -> tuple[Path, list[Found], list[str]]:
    """Write a recipe for the text in ``data``. Returns (recipe file, sources, notes on what was left out).

    ``name``: of the recipe (default: the folder's); ``out``: the file (default: ``<name>.yaml`` here). Raises BadInput
    for a folder that cannot be used, a name that is none, and a file that is there already.
    """
    data = Path(data).expanduser()
    if name is not None and not re.fullmatch(r"[\w.-]+", name):
        raise BadInput("a name is letters, digits, dot, dash and underscore", key="--name", got=name)
    name = name or re.sub(r"[^\w.-]+", "-", data.resolve().name).strip("-.") or "mine"
    out = Path(f"{name}.yaml") if out is None else Path(out)
    if out.exists():
        raise BadInput("the file exists; give another with --out-recipe", file=out)
    if not out.name.endswith((".yaml", ".yml")):
        raise BadInput("a recipe's file ends in .yaml", key="--out-recipe", got=str(out))
    found, notes = scan(data.resolve())
    text = render(name, found, sizes(found), notes, out.resolve().parent)
    with atomic(out) as tmp:
        tmp.write_text(text, encoding="utf-8")
    return out, found, notes


def render(name: str, found: Sequence[Found], size: Sizes, notes: Sequence[str], beside: Path) -> str:
    """The YAML text; paths below ``beside``, the recipe's folder, are relative to it."""
    lines = [
        "# Written by `gristmill init` from a look at the files. Everything may be changed; what is a guess says so.",
        f"# About {size.tokens / 1e6:.2g}M tokens of text in all.",
        *(f"# Left out: {' '.join(note.split())}" for note in notes),
        f"name: {name}",
        "seed: 1",
    ]
    if size.scale < 1:
        lines += [
            "# Share of every source that is read: a first run should take minutes on a CPU. `scale: 1` reads all;",
            f"# at 20 tokens a parameter that is text for a model of about {size.tokens / 20e6:.2g}M parameters.",
            f"scale: {size.scale:g}",
        ]
    lines += [
        "",
        "# licence: unstated, until you say what the text's is (an SPDX identifier, such as CC-BY-4.0)",
        "sources:",
    ]
    for source in found:
        read = source.format if source.text_field is None else f"{{{source.format}: {json.dumps(source.text_field)}}}"
        unknown = " (not English: put the ISO 639-1 code)" if source.lang == UNKNOWN else ""
        lines.append(
            f"  # guessed: {source.format}{f', text in {source.text_field!r}' if source.text_field else ''}, language "
            f"{source.lang}{unknown}; {amount(source)}"
        )
        where = json.dumps(_relative(source.path, beside), ensure_ascii=False)
        kind = f"domain: {source.domain}, lang: {source.lang}, licence: unstated"
        lines.append(f"  {source.name}: {{from: {{kind: files, path: {where}}}, read: {read}, {kind}}}")
    english = any(source.domain == "english" for source in found)
    width = max(len(source.name) for source in found) + 1
    lines += [
        "",
        "clean:",
        "  filters:",
        f"    - length: {{min_chars: {size.min_chars}}}",
        *(
            ["    # - gopher_quality: {domains: [english]}   # for pages of the web; drops texts below 50 words"]
            * english
        ),
        "  on_bad_row: skip                    # counted by reason; `strict` stops at the first",
        "dedup: {exact: true, minhash: {threshold: 0.7}, scope: source}",
        "score: {heuristics: {}}               # a quality score from surface statistics; orders the curriculum",
        f"split: {{validation: {size.validation:g}}}             # share of the documents held out",
        f"tokenizer: {{kind: train, vocab_size: {size.vocab_size}}}",
        "",
        "# all, none, top SHARE (the best by score), rand SHARE, xCOPIES",
        "phases: {p1: {order: shuffle}, p2: {order: curriculum}}",
        f"mix: {'#':<{width}}p1   p2",
        *(f"  {source.name + ':':<{width + 1}} [all, top .50]" for source in found),
        "",
        f"pack: {{seq_len: {size.seq_len}}}",
        f"model: {{layers: {size.layers}, hidden: {size.hidden}, mlp: {size.mlp}, heads: {size.heads}, "
        f"kv_heads: {size.kv_heads}, logit_softcap: 30}}",
        "train:",
        f"  batch_tokens: {size.batch_tokens}",
        "  optimizer: {kind: adamw, lr: 3e-3}",
        "  schedule: {kind: wsm, warmup: 0.05}   # constant after warm-up: merging stands in for decay",
        f"  checkpoints: {size.checkpoints}",
        f"merge: {{shape: linear, last: {size.last}}}",
        "eval:",
        "  - {name: raw,    of: pretrain, suite: bpb}",
        "  - {name: merged, of: merge,    suite: bpb}",
        "release: {model: merge, licence: unstated}",
    ]
    return "\n".join(lines) + "\n"


def amount(source: Found) -> str:
    """How much of it there is, in words."""
    files = f"{source.files} file{'s' * (source.files != 1)}"
    return f"{files}, about {source.documents:,} documents, {source.bytes / 1e6:.2g} MB"


def _relative(path: str, beside: Path) -> str:
    inside = Path(path).is_relative_to(beside)
    return Path(os.path.relpath(path, beside)).as_posix() if inside else path
