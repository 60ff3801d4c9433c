#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ten steps of ours beside ten steps of PyTorch, from the same weights, on the same tokens.

Exports the initialisation to Hugging Face's format, trains it there with PyTorch's AdamW, and compares losses,
gradient norms and the weights after ten steps: GPT in float32 and in float64, Llama in float32, the type in which
Hugging Face's norms compute. Needs the environment that
`scripts/bench --environment-only` makes, as scripts/test --peer does.
"""
import sys

from peer_environment import enter_environment

# Relative errors. In float32 sums of other orders differ by their rounding, which ten steps carry on.
TOLERANCES = {"float32": {"first": 1e-5, "loss": 2e-5, "norm": 1e-4, "after": 1e-5},
              "float64": {"first": 1e-9, "loss": 1e-9, "norm": 1e-9, "after": 1e-9, "weights": 1e-7}}


def is_key_bias(name):
    return name.endswith("c_attn.bias")


def compare(kind, precision, checks):
    import torch

    import pytorch_gpt
    from tiny_run import LLAMA, MODEL, OPTIMIZER, STEPS_COMPARED, TinyRun

    print(f"--- {kind}, {precision}")
    dtype = getattr(torch, precision)
    tolerance = TOLERANCES[precision]
    run = TinyRun(f"{kind}-{precision}", precision, threads=2, keep_checkpoints=True,
                  model={"gpt": MODEL, "llama": LLAMA}[kind])
    ours = run.train()
    batches = [run.batch(step) for step in range(1, STEPS_COMPARED + 1)]

    model = pytorch_gpt.load(run.export(0), dtype)
    checks.close("loss of the exported initialisation", pytorch_gpt.loss_of(model, batches[0]), ours[0]["loss"],
                 tolerance["first"])
    theirs = pytorch_gpt.train(model, batches)
    for row, (loss, norm) in zip(ours, theirs):
        checks.close(f"step {row['step']} loss", row["loss"], loss, tolerance["loss"])
        checks.close(f"step {row['step']} gradient norm", row["gradient_norm"], norm, tolerance["norm"])
    checks.true("some gradients were clipped", max(norm for _, norm in theirs) > OPTIMIZER["clip_norm"])
    checks.true("training helped", theirs[-1][0] < theirs[0][0] - 0.5, f"{theirs[0][0]} to {theirs[-1][0]}")

    exported = pytorch_gpt.load(run.export(STEPS_COMPARED), dtype)
    checks.close(f"loss of the export of step {STEPS_COMPARED}", pytorch_gpt.loss_of(exported, batches[0]),
                 pytorch_gpt.loss_of(model, batches[0]), tolerance["after"])
    if "weights" not in tolerance:
        return
    trained = dict(model.named_parameters())
    for name, weight in exported.named_parameters():
        difference = (weight - trained[name]).abs()
        if is_key_bias(name):
            # A bias of the keys changes no attention: its gradient is rounding alone, and so are its updates.
            hidden = difference.numel() // 3
            difference[hidden:2 * hidden] = 0
        checks.true(f"weights after ten steps: {name}", difference.max().item() <= tolerance["weights"],
                    f"differ by {difference.max().item():.1e}")


def main():
    enter_environment()
    from tiny_run import Checks

    checks = Checks()
    for precision in TOLERANCES:
        compare("gpt", precision, checks)
    compare("llama", "float32", checks)
    checks.finish()


main()
