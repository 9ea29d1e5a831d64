"""The exported folder is the model: stock class, fresh process, same logits, and a gate that notices."""

from __future__ import annotations

import pytest
import torch
import toy
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import read_json, write_json
from gristmill.train import export
from gristmill.train.load import load_model
from gristmill.train.model import Decoder, ModelConfig, initialise


def write_model(folder, seed: int = 0, vocab: int = 300, **changes):
    """A model folder with weights far from their initial values."""
    config = ModelConfig(**{**toy.MODEL, "rope_theta": 5e5, "init_std": 0.3, **changes})
    model = initialise(Decoder(config, vocab), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.3, 3, generator=generator)
    folder.mkdir()
    save_file(dict(model.named_parameters()), folder / "model.safetensors")
    card = {"model": config.model_dump(mode="json"), "vocab_size": vocab, "seq_len": 64, "precision": "fp32"}
    write_json(folder / "model.json", card)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """What the tokenizer stage writes, without training: bytes and three special tokens."""
    folder = tmp_path_factory.mktemp("tokenizer")
    specials = ["<|bos|>", "<|eos|>", "<|pad|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok = Tokenizer(models.BPE({c: k for k, c in enumerate([*specials, *alphabet])}, []))
    tok.add_special_tokens(specials)
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.save(str(folder / "tokenizer.json"))
    bos, eos, pad = specials
    names = {"bos_token": bos, "eos_token": eos, "pad_token": pad}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    ids = {"vocab_size": 259, "bos": bos, "eos": eos, "pad": pad, "bos_id": 0, "eos_id": 1, "pad_id": 2}
    write_json(folder / "tokens.json", ids)
    return folder


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    report = export.to_huggingface(write_model(folder / "model"), tokenizer, folder / "hf")
    return folder / "model", folder / "hf", report


def test_a_fresh_process_computes_the_same_logits(exported):
    model, hf, report = exported
    assert report["class"] == "Gemma3ForCausalLM"
    assert (report["vocab_size"], report["tokenizer_vocab_size"], report["padded_ids"]) == (300, 259, 41)
    found = export.check(model, hf)
    assert found["class"] == "Gemma3ForCausalLM" and found["argmax_agreement"] == 1
    assert found["max_abs_difference"] <= 1e-5 * max(1, found["largest_logit"])


def test_the_stock_classes_load_it_and_generate(exported):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _, hf, _ = exported
    model, tokenizer = AutoModelForCausalLM.from_pretrained(hf), AutoTokenizer.from_pretrained(hf)
    config = model.config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (0, 1, 2)
    assert config.max_position_embeddings == 64 and config.tie_word_embeddings is False
    assert config.rope_parameters["full_attention"]["rope_theta"] == 5e5
    batch = tokenizer("naïve 狗", return_tensors="pt")
    assert batch["input_ids"][0, 0] == 0 and int((batch["input_ids"] == 0).sum()) == 1  # one BOS, as in training
    assert tokenizer.decode(batch["input_ids"][0], skip_special_tokens=True) == "naïve 狗"
    out = model.generate(**batch, max_new_tokens=4, do_sample=False)
    assert out.shape[1] > batch["input_ids"].shape[1]


@pytest.mark.parametrize("changes", [{"tie": True, "logit_softcap": None}, {"hidden": 24, "heads": 2, "head_dim": 16}])
def test_other_shapes_are_lossless_too(tokenizer, tmp_path, changes):
    """In this process, for speed: the mapping is what is tested."""
    from transformers import AutoModelForCausalLM

    export.to_huggingface(write_model(tmp_path / "model", **changes), tokenizer, tmp_path / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    ours, _ = load_model(tmp_path / "model")
    tokens = export.prompts(300, 64)
    with torch.no_grad():
        a, b = ours.logits(ours(tokens)), theirs(tokens).logits
    assert (a - b).abs().max() <= 1e-5 * max(1, float(a.abs().max()))


def tamper(hf, out, change):
    out.mkdir()
    for path in hf.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    tensors = load_file(out / "model.safetensors")
    change(tensors, out)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def one_row(tensors, _):
    tensors["model.embed_tokens.weight"][299, 0] += 1e-3  # an id that no prompt need hold


def lost(tensors, _):
    del tensors["model.layers.1.self_attn.k_norm.weight"]


def theta(_, folder):
    config = read_json(folder / "config.json")
    config["rope_parameters"]["full_attention"]["rope_theta"] = 1e4
    write_json(folder / "config.json", config)


@pytest.mark.parametrize(
    ("change", "words"),
    [(one_row, "embed_tokens.weight"), (lost, "layers.1.self_attn.k_norm"), (theta, "logits differ")],
)
def test_a_tampered_export_is_refused(exported, tmp_path, change, words):
    from gristmill.train.parity import check_parity

    model, hf, _ = exported
    tamper(hf, tmp_path / "hf", change)
    export.reference_logits(model, export.prompts(300, 64), tmp_path / "expected.safetensors")
    with pytest.raises(BadInput, match=words):
        check_parity(tmp_path / "hf", tmp_path / "expected.safetensors")


def test_the_gate_refuses_in_one_line(exported, tmp_path):
    model, hf, _ = exported
    tamper(hf, tmp_path / "hf", one_row)
    with pytest.raises(BadInput, match="the export is not the model: .*embed_tokens.weight"):
        export.check(model, tmp_path / "hf")


@pytest.mark.parametrize(("changes", "word"), [({"norm": "pre"}, "model.norm"), ({"qk_norm": False}, "model.qk_norm")])
def test_what_no_stock_class_computes_is_refused(tokenizer, tmp_path, changes, word):
    with pytest.raises(BadInput, match=f"{word}.*stock class"):
        export.to_huggingface(write_model(tmp_path / "model", **changes), tokenizer, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
