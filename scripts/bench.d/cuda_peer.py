# SPDX-License-Identifier: MIT
"""Trains a reference model (references.py) on a GPU on made-up data and prints one line of JSON about it.

cuda.py starts one process of this for each turn. The loop is what a careful user would write: fused AdamW, autocast to
bfloat16, nothing read back but once a step; `compile` and `checkpoint` are torch.compile and recomputation of every block.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=json.loads, required=True, help="keys, as JSON")
    parser.add_argument("--shape", type=json.loads, default={}, help="of fields: inputs, targets, points, grid")
    parser.add_argument("--way", choices=("eager", "compile", "checkpoint"), required=True)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), required=True)
    for name in ("global-batch", "micro-batch", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this script; no bytes")
    return parser.parse_args()


options = parse_arguments()

import torch  # noqa: E402 (after the arguments: it takes seconds)
from torch.utils.checkpoint import checkpoint  # noqa: E402

import pytorch_gpt  # noqa: E402
import references  # noqa: E402

WARM_UP = 3  # steps that are not timed: kernels are chosen, compiled code is made


def run_blocks_again(model, kind):
    """Every block keeps its input alone, and is run again for its backward."""
    blocks = references.blocks_of(model, kind)
    if not len(blocks):
        sys.exit(f"{kind}: this library's model is not made of blocks that could be run again")
    for block in blocks:
        forward = block.forward
        block.forward = lambda *given, forward=forward: checkpoint(forward, *given, use_reentrant=False)


def made_up(kind):
    count = options.micro_batch
    if kind == "gpt":
        shape = (count, options.model["sequence"])
        return [torch.randint(options.model["vocabulary"], shape, device=options.device) for _ in range(2)]
    return [torch.randn(count, options.shape[name], *options.shape["points"], device=options.device)
            for name in ("inputs", "targets")]


def settle():
    if options.device == "cuda":
        torch.cuda.synchronize()


def main():
    torch.manual_seed(1)
    kind = options.model["kind"]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = references.make_model(options.model, options.shape).to(options.device)
    count = references.parameter_count(model)
    if options.way == "checkpoint":
        run_blocks_again(model, kind)
    parameters = list(model.parameters())
    if kind == "gpt":
        optimizer = pytorch_gpt.make_optimizer(parameters)
    else:  # the fused form knows no complex numbers
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4, foreach=True)
    run = torch.compile(model) if options.way == "compile" else model
    micro_batches = [made_up(kind) for _ in range(options.global_batch // options.micro_batch)]
    narrow = (torch.autocast(options.device, dtype=torch.bfloat16) if options.precision == "bfloat16"
              else contextlib.nullcontext())

    def step():
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for inputs, targets in micro_batches:
            with narrow:
                loss = references.loss_of(run, kind, inputs, targets) / len(micro_batches)
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return total.item()

    for _ in range(WARM_UP):
        step()
    settle()
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.steps):
        start = time.perf_counter()
        loss = step()
        settle()
        seconds.append(time.perf_counter() - start)
    result = {"parameters": count, "loss": loss, "step_seconds": statistics.median(seconds),
              "samples_per_second": options.global_batch / statistics.median(seconds), "torch": torch.__version__}
    if options.device == "cuda":
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
        result["reserved_bytes"] = torch.cuda.max_memory_reserved()
    print(json.dumps(result))


main()
