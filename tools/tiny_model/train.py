"""Train the shipped tiny model and write its checkpoint folder.

    python -m tools.tiny_model.train --out testdata/tiny-qwen35

One seed, one thread: the same versions on the same kind of CPU give the same file.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM

from tools.tiny_model import architecture, byte_bpe, corpus, export
from tools.tiny_model.muon import Muon

SEED = 20260107
STEPS = 1300
BATCH_TOKENS = 3072
# (first step of the phase as a share of all steps, sequence length): long rows only at the end.
PHASES = ((0.0, 128), (0.25, 256), (0.85, 512))
WARM_UP = 30
COOL_DOWN = 0.45  # share of the steps over which the rate falls linearly to 0
MATRIX_RATE = 0.02
VECTOR_RATE = 3e-3
HELD_OUT_EVERY = 40  # every 40th document is never trained on


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[torch.Tensor]:
    """Token ids of each document, ended by END_OF_TEXT: int64 [tokens]."""
    return [
        torch.tensor([*item.ids, architecture.END_OF_TEXT])
        for item in tokenizer.encode_batch(texts)
    ]


class Stream:
    """Endless rows of tokens: all documents in a fresh random order each epoch."""

    def __init__(self, items: list[torch.Tensor], generator: torch.Generator) -> None:
        self._items = items
        self._generator = generator
        self._left = torch.empty(0, dtype=torch.int64)
        self.epochs = 0

    def rows(self, count: int, length: int) -> torch.Tensor:
        """int64 [count, length + 1]: neighbouring rows share one token (target, then input)."""
        needed = count * length + 1
        while self._left.numel() < needed:
            order = torch.randperm(len(self._items), generator=self._generator)
            self._left = torch.cat([self._left, *(self._items[i] for i in order.tolist())])
            self.epochs += 1
        taken, self._left = self._left[:needed], self._left[needed - 1 :]
        return torch.stack([taken[i * length : (i + 1) * length + 1] for i in range(count)])


def loss_of(model: Qwen3_5ForCausalLM, rows: torch.Tensor) -> torch.Tensor:
    """Mean negative log likelihood in nats per token."""
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def held_out_loss(model: Qwen3_5ForCausalLM, items: list[torch.Tensor]) -> float:
    """Mean loss over the held-out documents, cut into rows of 256 tokens."""
    stream = torch.cat(items)
    count = (stream.numel() - 1) // 256
    rows = torch.stack([stream[i * 256 : i * 256 + 257] for i in range(count)])
    with torch.no_grad():
        losses = [loss_of(model, part) * len(part) for part in rows.split(8)]
    return float(sum(losses) / count)


def optimisers(model: Qwen3_5ForCausalLM) -> tuple[Muon, torch.optim.Optimizer]:
    """Muon for the large matrices, AdamW for everything else."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        large = weight.ndim == 2 and min(weight.shape) >= 32 and "embed_tokens" not in name
        (matrices if large else others).append(weight)
    adam = torch.optim.AdamW(others, lr=VECTOR_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    return Muon(matrices, momentum=0.95, decay=0.1), adam


def rate_factor(step: int, steps: int) -> float:
    """Linear warm-up, plateau, linear fall to 0."""
    rise = min(1.0, (step + 1) / WARM_UP)
    return rise * min(1.0, (steps - step) / (COOL_DOWN * steps))


def sequence_length(step: int, steps: int) -> int:
    """The row length of the phase that `step` is in."""
    return [length for start, length in PHASES if step >= start * steps][-1]


def fit(model: Qwen3_5ForCausalLM, items: list[torch.Tensor], steps: int) -> dict[str, object]:
    """Train in place; returns what the run's record says about it."""
    stream = Stream(items, torch.Generator().manual_seed(SEED + 1))
    muon, adam = optimisers(model)
    started, smooth, tokens = time.monotonic(), math.log(architecture.VOCABULARY), 0
    for step in range(steps):
        length = sequence_length(step, steps)
        rows = stream.rows(BATCH_TOKENS // length, length)
        loss = loss_of(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        factor = rate_factor(step, steps)
        muon.step(MATRIX_RATE * factor)
        for group in adam.param_groups:
            group["lr"] = VECTOR_RATE * factor
        adam.step()
        model.zero_grad()
        tokens += rows.shape[0] * length
        smooth += 0.05 * (loss.item() - smooth)
        if step % 20 == 0:
            print(f"step {step} loss {smooth:.4f} {time.monotonic() - started:.0f} s", flush=True)
    return {"epochs": stream.epochs, "steps": steps, "tokens": tokens, "training_loss": smooth}


def main() -> None:
    """Build the corpus, the tokenizer and the model; train; write the folder and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    texts = corpus.documents()
    tokenizer = byte_bpe.train(texts, architecture.VOCABULARY)
    items = encode(tokenizer, texts)
    held_out = items[::HELD_OUT_EVERY]
    training = [item for i, item in enumerate(items) if i % HELD_OUT_EVERY]
    print(f"{len(texts)} documents, {sum(map(len, items))} tokens", flush=True)
    model = architecture.build(torch.Generator().manual_seed(SEED))
    record: dict[str, object] = {"seed": SEED, "corpus_sha256": corpus.digest(texts)}
    record |= {
        "documents": len(texts),
        "corpus_characters": sum(map(len, texts)),
        **fit(model, training, options.steps),
    }
    export.round_to_file_precision(model)
    record["held_out_loss"] = held_out_loss(model, held_out)
    options.out.mkdir(parents=True, exist_ok=True)
    export.write_folder(options.out, model, tokenizer)
    export.check_folder(options.out, model)
    export.write_provenance(options.out, record)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
