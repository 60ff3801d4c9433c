#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Losses and gradient norms of ten steps beside those that PyTorch gave for the same weights and tokens.

The expected values are checked in (tests/apps/reference_values/gpt_tiny.json, made by make_reference_values.py),
so that this needs the program and Python's standard library alone.
"""
import json
import os
import pathlib

from tiny_run import Checks, TinyRun, hash_of, tiny_text

VALUES = pathlib.Path(os.environ["GARONNE_SOURCE"]) / "tests" / "apps" / "reference_values" / "gpt_tiny.json"

# Relative errors against values of float64: of the loss and of the gradient norm. In bfloat16 some 25 nodes round what they
# make and have rounded weights, each by 2^-8 / sqrt(3) of a number at random: 1.6 % on the way to the loss, where the errors of
# tokens average out, and 2.3 % with the way back; weights of ten steps ago add as much again.
TOLERANCES = {"float64": (1e-9, 1e-9), "float32": (2e-5, 1e-4), "bfloat16": (5e-3, 5e-2)}


def main():
    expected = json.loads(VALUES.read_text())
    checks = Checks()
    checks.true("the text is that of the reference values", hash_of(tiny_text()) == expected["text_hash"],
                "tiny_run.py makes another text: run make_reference_values.py again")
    for precision, (loss_tolerance, norm_tolerance) in TOLERANCES.items():
        run = TinyRun(precision, precision, threads=1)
        rows = run.train()
        if precision == "float64":
            for step in (1, len(expected["steps"])):
                batch = run.batch(step)
                checks.true(f"batch of step {step}",
                            hash_of([batch["tokens"], batch["targets"]]) == expected["steps"][step - 1]["batch_hash"],
                            "other samples than those of the reference values")
        for row, reference in zip(rows, expected["steps"]):
            name = f"{precision} step {row['step']}"
            checks.close(f"{name} loss", row["loss"], reference["loss"], loss_tolerance)
            checks.close(f"{name} gradient norm", row["gradient_norm"], reference["gradient_norm"], norm_tolerance)
    checks.finish()


main()
