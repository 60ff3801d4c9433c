# SPDX-License-Identifier: MIT
"""Trains a GPT-2 in plain eager PyTorch on random tokens and prints one line of JSON about it.

compare.py starts one process of this for each measurement. The model (pytorch_gpt.py), the optimizer and the
loop are what a careful user would write, the fused AdamW among them.
"""
import argparse
import json
import os
import resource
import statistics
import time


def seconds_since_start():
    """Since the parent started this process: its clock is the same as ours."""
    return time.monotonic() - float(os.environ["GARONNE_BENCH_STARTED"])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "global-batch", "micro-batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--linear", choices=("default", "onednn"), default="default")
    parser.add_argument("--measure", choices=("time", "memory"), default="time")
    return parser.parse_args()


options = parse_arguments()

import torch  # noqa: E402 (after the arguments: it takes a second)

resident_after_import = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


import pytorch_gpt  # noqa: E402
from eager_memory import bytes_between_steps, peak_bytes_of  # noqa: E402


def run_step(model, optimizer, micro_batches):
    optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    for tokens, targets in micro_batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = pytorch_gpt.loss_of(model(tokens), targets) / len(micro_batches)
        loss.backward()
        loss_sum += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss_sum


def peak_bytes_of_a_step(model, optimizer, micro_batches):
    optimizer.zero_grad(set_to_none=True)
    live = bytes_between_steps(model, optimizer, [t for pair in micro_batches for t in pair])
    return peak_bytes_of(lambda: run_step(model, optimizer, micro_batches), live)


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    pytorch_gpt.linear_by_onednn = options.linear == "onednn"
    model = pytorch_gpt.Gpt(options)
    optimizer = pytorch_gpt.make_optimizer(model.parameters())
    shape = (options.micro_batch, options.sequence)
    micro_batches = [(torch.randint(options.vocabulary, shape), torch.randint(options.vocabulary, shape))
                     for _ in range(options.global_batch // options.micro_batch)]
    result = {"parameters": sum(p.numel() for p in model.parameters()), "resident_after_import": resident_after_import}
    if options.measure == "memory":
        run_step(model, optimizer, micro_batches)  # makes the optimizer's states
        result["peak_bytes"] = peak_bytes_of_a_step(model, optimizer, micro_batches)
    else:
        result["seconds_to_first_step"] = seconds_since_start()
        seconds = []
        for step in range(options.steps + 2):
            start = time.perf_counter()
            result["loss"] = run_step(model, optimizer, micro_batches)
            if step == 0:
                result["seconds_to_first_result"] = seconds_since_start()
            if step >= 2:
                seconds.append(time.perf_counter() - start)
        result["step_seconds"] = statistics.median(seconds)
        result["tokens_per_second"] = options.global_batch * options.sequence / result["step_seconds"]
        result["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


main()
