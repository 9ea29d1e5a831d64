"""The stage graph: a recipe as nodes, each a plain function with its slice of the configuration.

A new stage is one function in its room and one entry here.
"""

from __future__ import annotations

from pathlib import Path

from gristmill.data import clean, corpus, dedup, mix, pack, score, split, tokenizer, tokens
from gristmill.eval import suites
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.files import file_hash
from gristmill.kernels.common.seeds import derive
from gristmill.posttrain import stage as posttrain
from gristmill.recipes.runner.schema import Recipe
from gristmill.recipes.runner.store import Node
from gristmill.train import merge, pretrain

# Bump a version whenever the code changes what its stage writes; tests/test_stage_hashes.py notices.
VERSIONS = {
    "corpus": 1,
    "clean": 1,
    "dedup": 1,
    "score": 1,
    "split": 1,
    "tokenizer": 1,
    "tokens": 1,
    "mix": 1,
    "pack": 2,  # a row leaves within `buffer` rows of where it was opened
    "pretrain": 1,
    "merge": 1,
    "posttrain": 1,
    "eval": 3,
}


def build(recipe: Recipe, *, cache: Path, root: Path, external: dict[str, dict] | None = None) -> dict[str, Node]:
    """Node key -> node, in an order in which inputs come first.

    ``cache`` holds downloaded archives; relative paths in the recipe start from ``root``. Reads (and hashes)
    the files of sources that the recipe's text does not pin, unless ``external`` (node key -> identity) says
    what they were.
    """
    nodes: dict[str, Node] = {}

    def add(stage: str, module, config, key: str | None = None, resumable: bool = False, external=None, **inputs: str):
        nodes[key or stage] = Node(
            key=key or stage,
            stage=stage,
            version=VERSIONS[stage],
            config=config,
            run=module.run,
            inputs=inputs,
            external=external or {},
            resumable=resumable,
        )

    def seed(stage: str) -> int:
        return derive(recipe.seed, stage)

    engine = recipe.engine
    kinds = {name: {"domain": s.domain, "lang": s.lang} for name, s in recipe.sources.items()}
    add(
        "corpus",
        corpus,
        corpus.CorpusStage(
            sources=recipe.sources,
            corpus=recipe.corpus,
            scale=recipe.scale,
            on_bad_row=recipe.clean.on_bad_row,
            seed=seed("corpus"),
            cache=str(cache),
            root=str(root),
            engine=engine,
        ),
        external=corpus.external(recipe.sources, root, cache) if external is None else external.get("corpus", {}),
    )
    add("clean", clean, clean.CleanStage(clean=recipe.clean, sources=kinds, engine=engine), documents="corpus")
    languages = {name: kind["lang"] for name, kind in kinds.items()}
    dedup_stage = dedup.DedupStage(dedup=recipe.dedup, languages=languages, seed=seed("dedup"), engine=engine)
    add("dedup", dedup, dedup_stage, documents="clean")
    add("score", score, score.ScoreStage(score=recipe.score, sources=kinds, engine=engine), documents="dedup")
    add("split", split, split.SplitStage(split=recipe.split, seed=seed("split")), documents="score")
    _add_tokenizer(add, recipe, root, external)
    columns = tuple(sorted({c for name in recipe.sources if (c := recipe.score_of(name))}))
    tokens_stage = tokens.TokensStage(tokens=recipe.tokens, columns=columns, engine=engine)
    add("tokens", tokens, tokens_stage, split="split", tokenizer="tokenizer")
    scores = {name: recipe.score_of(name) for name in recipe.mix}
    mix_stage = mix.MixStage(
        phases=tuple(recipe.phases.items()), mix=recipe.mix, scores=scores, seed=seed("mix"), engine=engine
    )
    add("mix", mix, mix_stage, tokens="tokens")
    add("pack", pack, pack.PackStage(pack=recipe.pack), tokens="tokens", mix="mix")
    train_seed = seed("pretrain") if recipe.train.seed is None else recipe.train.seed
    config = pretrain.PretrainConfig(model=recipe.model, train=recipe.train.resolved(), seed=train_seed)
    add("pretrain", pretrain, config, resumable=True, pack="pack")
    add("merge", merge, recipe.merge, pretrain="pretrain")
    for step in recipe.posttrain:
        key = f"posttrain.{step.name}"
        config = posttrain.PosttrainStage(
            step=step,
            prompts=recipe.prompts[step.data],
            prompts_seed=seed("prompts"),
            seed=seed(key) if step.seed is None else step.seed,
        )
        identity = posttrain.external() if external is None else external.get(key, {})
        inputs = {"model": recipe.stage_of(step.origin), "tokenizer": "tokenizer"}
        add("posttrain", posttrain, config, key=key, resumable=True, external=identity, **inputs)
    for entry in recipe.eval:
        config = suites.EvalStage(
            eval=entry,
            domains={name: kind["domain"] for name, kind in kinds.items()},
            languages=languages,
            seed=seed("eval"),  # one for all: every model is asked the same
            cache=str(cache),
        )
        inputs = {"model": recipe.stage_of(entry.of), "split": "split", "tokenizer": "tokenizer"}
        add("eval", suites, config, key=f"eval.{entry.name}", **inputs)
    return nodes


def _add_tokenizer(add, recipe: Recipe, root: Path, external: dict[str, dict] | None) -> None:
    spec = recipe.tokenizer
    if spec.kind == "train":
        add("tokenizer", tokenizer, tokenizer.TokenizerStage(tokenizer=spec), split="split")
        return
    path = root / spec.path
    if external is None and not path.is_file():
        raise BadInput("no such file", file=path, key="tokenizer.path")
    stage = tokenizer.TokenizerStage(tokenizer=spec, file=str(path))
    identity = {"file": file_hash(path)} if external is None else external.get("tokenizer", {})
    add("tokenizer", tokenizer, stage, external=identity)


def dependants(nodes: dict[str, Node], key: str) -> list[str]:
    """Keys of every node that ``key`` reaches, itself first."""
    reached = [key]
    for node in nodes.values():
        if node.key not in reached and any(source in reached for source in node.inputs.values()):
            reached.append(node.key)
    return reached
