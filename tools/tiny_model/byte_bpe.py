"""A byte-level BPE tokenizer: any text encodes, and decodes to itself."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"


def train(texts: list[str], vocabulary: int) -> Tokenizer:
    """A tokenizer with exactly `vocabulary` entries; END_OF_TEXT is id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(f"{tokenizer.get_vocab_size()} tokens learned, {vocabulary} wanted")
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json into `folder`."""
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
