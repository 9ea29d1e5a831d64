"""The gate every export passes: ``python -m gristmill.train.parity HF_DIR EXPECTED``, in a process of its own.

EXPECTED (and its .json) is what ``export.reference_logits`` wrote. Refused are a missing, unexpected, mismatched or
newly initialised key, a class that is not transformers' own, a tensor with other bytes, a logit off by more than
1e-4 (relative to the largest where that exceeds 1), and another most likely token.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json, write_json
from gristmill.train.export import tensor_hash

TOLERANCE = 1e-4


def check_parity(hf_dir: Path, expected: Path) -> dict[str, float | str]:
    """{"class", "max_abs_difference", "largest_logit", "argmax_agreement"}. Raises BadInput on any difference."""
    hashes, stored = read_json(Path(expected).with_suffix(".json")), load_file(Path(hf_dir) / "model.safetensors")
    wrong = sorted(
        k for k in hashes.keys() | stored.keys() if k not in stored or hashes.get(k) != tensor_hash(stored[k])
    )
    if wrong:
        raise BadInput("not the exported tensor", file=hf_dir, key=wrong[0])
    from transformers import AutoModelForCausalLM  # slow to import, so only for what has passed

    model, info = AutoModelForCausalLM.from_pretrained(
        hf_dir, dtype=torch.float32, local_files_only=True, trust_remote_code=False, output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            raise BadInput(kind.replace("_", " "), file=hf_dir, got=sorted(map(str, info[kind])))
    if not type(model).__module__.startswith("transformers."):
        raise BadInput("not a stock class", file=hf_dir, got=type(model).__name__)
    data = load_file(expected)
    with torch.inference_mode():
        logits = model.eval()(data["tokens"]).logits.float()
    scale = max(1.0, float(data["logits"].abs().max()))
    difference = float((logits - data["logits"]).abs().max())
    if not difference <= TOLERANCE * scale:
        raise BadInput("logits differ", file=hf_dir, got=difference, expected=f"at most {TOLERANCE * scale:g}")
    top = data["logits"].topk(2).values
    decided = top[..., 0] - top[..., 1] > 2 * difference  # closer ones no FP32 forward can tell apart
    agree = (logits.argmax(-1) == data["logits"].argmax(-1))[decided]
    if not bool(agree.all()):
        raise BadInput("another most likely token", file=hf_dir, got=float(agree.float().mean()), expected="1.0")
    return {
        "class": type(model).__name__,
        "max_abs_difference": difference,
        "largest_logit": float(data["logits"].abs().max()),
        "argmax_agreement": float((logits.argmax(-1) == data["logits"].argmax(-1)).float().mean()),
    }


def main(hf_dir: str, expected: str) -> int:
    try:
        report = check_parity(Path(hf_dir), Path(expected))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    write_json(Path(expected).with_name("report.json"), report)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
