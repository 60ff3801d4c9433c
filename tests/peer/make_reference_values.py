#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/apps/reference_values/gpt_tiny.json: what PyTorch says of the tiny run, in float64.

  GARONNE_BINARY=build/bin/garonne .deps/bench-python/bin/python tests/peer/make_reference_values.py

The weights of step 0 and the tokens come from the program; losses, gradients and updates are Hugging Face's GPT-2
and PyTorch's AdamW alone. To be run again only where initialisation, sample order or tiny_run.py change on purpose.
"""
import json
import pathlib
import tempfile

import torch
import transformers

import pytorch_gpt
from tiny_run import MODEL, OPTIMIZER, STEPS_COMPARED, TRAIN, TinyRun, hash_of, tiny_text

VALUES = pathlib.Path(__file__).resolve().parent.parent / "apps" / "reference_values" / "gpt_tiny.json"


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = TinyRun(pathlib.Path(folder) / "float64", "float64", threads=1)
        run.train()  # an export wants a run directory
        batches = [run.batch(step) for step in range(1, STEPS_COMPARED + 1)]
        model = pytorch_gpt.load(run.export(0), torch.float64)
        rows = pytorch_gpt.train(model, batches)
    steps = [{"loss": loss, "gradient_norm": norm, "batch_hash": hash_of([batch["tokens"], batch["targets"]])}
             for (loss, norm), batch in zip(rows, batches)]
    values = {"made_by": "tests/peer/make_reference_values.py",
              "with": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, float64",
              "model": MODEL, "train": TRAIN, "optimizer": OPTIMIZER, "text_hash": hash_of(tiny_text()), "steps": steps}
    VALUES.parent.mkdir(parents=True, exist_ok=True)
    VALUES.write_text(json.dumps(values, indent=1) + "\n")
    print(f"{VALUES}: losses {rows[0][0]:.4f} to {rows[-1][0]:.4f}")


main()
