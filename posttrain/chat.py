"""Talk to a model in the terminal: what it says appears as it is drawn.

A model whose tokenizer has a chat template is given messages. Any other continues one text: what is typed is appended
to it and the model goes on from there; an empty line lets it go on from where it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pydantic import Field

from gristmill.eval.generate import SamplingParams, generate
from gristmill.eval.models import LanguageModel
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.seeds import derive

QUIT, RESET, HELP = ("/quit", "/exit"), "/reset", "/help"
COMMANDS = "/reset begins anew, /quit or Ctrl-D ends, Ctrl-C stops an answer"


class ChatConfig(Config):
    """How answers are drawn."""

    temperature: float = Field(0.8, ge=0, description="0 always takes the likeliest token")
    top_p: float = Field(0.95, gt=0, le=1, description="draw from the likeliest tokens with this mass (0-1]")
    max_tokens: int = Field(200, ge=1, description="longest answer (tokens)")
    seed: int = Field(0, ge=0, description="the same seed and the same lines get the same answers")


def chat(lm: LanguageModel, config: ChatConfig, ask: Callable[[], str], say: Callable[[str], Any]) -> None:
    """Converse until ``ask`` (the next line typed) raises EOFError or gives /quit; ``say`` takes text piece by piece.

    KeyboardInterrupt ends the answer that is being given, which stays part of the conversation, and nothing else.
    """
    talk = _Messages(lm) if lm.tokenizer.chat_template else _Text(lm)
    turn = 0
    while True:
        try:
            line = ask()
        except EOFError:
            return
        except KeyboardInterrupt:
            say(f"\n({COMMANDS})\n")
            continue
        command = line.strip()
        if command in QUIT:
            return
        if command == HELP:
            say(f"({COMMANDS})\n")
        elif command == RESET:
            talk.reset()
        else:
            room = max(1, min(config.max_tokens, lm.max_length // 2))
            prompt = talk.prompt(line, lm.max_length - room)
            if prompt:
                params = SamplingParams(
                    temperature=config.temperature,
                    top_p=config.top_p,
                    max_tokens=room,
                    seed=derive(config.seed, "turn", turn),
                )
                talk.answered(_stream(lm, prompt, params, say))
                say("\n")
                turn += 1


def _stream(lm: LanguageModel, prompt: list[int], params: SamplingParams, say: Callable[[str], Any]) -> list[int]:
    """Say the continuation of ``prompt`` as it comes; returns its ids, without the token that ended it."""
    ids: list[int] = []
    said = ""

    def on_token(_: int, token: int) -> None:
        nonlocal said
        if token in lm.stop:
            return
        ids.append(token)
        text = lm.decode(ids)
        # a character of several tokens shows as U+FFFD until its last one is there
        if not text.endswith("\ufffd") and text.startswith(said):
            say(text[len(said) :])
            said = text

    with contextlib.suppress(KeyboardInterrupt):
        generate(lm.model, [prompt], [params], stop=lm.stop, pad_id=lm.pad_id, on_token=on_token)
    if rest := lm.decode(ids)[len(said) :]:
        say(rest)
    return ids


class _Text:
    """One text that grows from both sides of the conversation."""

    def __init__(self, lm: LanguageModel):
        self.lm = lm
        self.reset()

    def reset(self) -> None:
        self.ids: list[int] = []

    def prompt(self, line: str, room: int) -> list[int]:
        """Ids of the text so far with ``line`` behind it, the oldest dropped where it does not fit."""
        if line:
            between = "\n" if self.ids else ""
            self.ids += self.lm.encode([between + line])[0]
        begin = self.lm.begin or [self.lm.prefix_id]
        return [*begin, *self.ids[-max(1, room - len(begin)) :]]

    def answered(self, ids: list[int]) -> None:
        self.ids += ids


class _Messages:
    """Turns of a user and an assistant, laid out by the tokenizer's chat template."""

    def __init__(self, lm: LanguageModel):
        self.lm = lm
        self.reset()

    def reset(self) -> None:
        self.messages: list[dict[str, str]] = []

    def prompt(self, line: str, room: int) -> list[int]:
        """Ids of the conversation with ``line`` as its last message; whole turns are dropped from the front, and of a
        message that alone is too long the beginning. Nothing for an empty line."""
        if not line.strip():
            return []
        self.messages.append({"role": "user", "content": line})
        while len(ids := self._ids()) > room and len(self.messages) > 2:
            del self.messages[:2]
        return ids[-room:]

    def answered(self, ids: list[int]) -> None:
        self.messages.append({"role": "assistant", "content": self.lm.decode(ids)})

    def _ids(self) -> list[int]:
        layout = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
        return list(self.lm.tokenizer.apply_chat_template(self.messages, **layout))
