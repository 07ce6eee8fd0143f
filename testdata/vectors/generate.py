"""Writes the vector files: `python -m testdata.vectors.generate`, from the root of the repository.

Understand a change before you commit it: a vector is a promise to every other implementation.
"""

from __future__ import annotations

from pathlib import Path

from testdata.vectors.block_vectors import block_vectors
from testdata.vectors.frame_vectors import frame_vectors
from testdata.vectors.ledger_vectors import ledger_vectors
from testdata.vectors.metadata_vectors import metadata_vectors
from testdata.vectors.session_vectors import session_vectors
from testdata.vectors.tensor_vectors import tensor_vectors

FILES = {
    "block.json": block_vectors,
    "frames.json": frame_vectors,
    "ledger.json": ledger_vectors,
    "metadata.json": metadata_vectors,
    "session.json": session_vectors,
    "tensors.json": tensor_vectors,
}


def main() -> None:
    for name, vectors in FILES.items():
        Path(__file__).with_name(name).write_bytes(vectors().to_bytes())


if __name__ == "__main__":
    main()
