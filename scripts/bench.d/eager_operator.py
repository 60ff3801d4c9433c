# SPDX-License-Identifier: MIT
"""Trains neuraloperator's FNO in eager PyTorch on random fields and prints one line of JSON about it.

operators.py starts one process of this for each measurement.
"""
import argparse
import json
import resource
import statistics
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("points", "layers", "hidden", "modes", "batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--measure", choices=("time", "memory"), default="time")
    return parser.parse_args()


options = parse_arguments()

import torch  # noqa: E402 (after the arguments: it takes a second)

import neuraloperator  # noqa: E402
from eager_memory import bytes_between_steps, peak_bytes_of  # noqa: E402

neuraloperator.load()
from neuralop.losses.data_losses import LpLoss  # noqa: E402
from neuralop.models.fno import FNO  # noqa: E402


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = FNO(n_modes=(options.modes, options.modes), in_channels=1, out_channels=1, hidden_channels=options.hidden,
                n_layers=options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, foreach=True)
    loss_of = LpLoss(d=2, reduction="mean")
    data = [torch.randn(options.batch, 1, options.points, options.points) for _ in range(2)]

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(data[0]), data[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    result = {"parameters": sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())}
    if options.measure == "memory":
        step()  # makes the optimizer's states
        optimizer.zero_grad(set_to_none=True)
        result["peak_bytes"] = peak_bytes_of(step, bytes_between_steps(model, optimizer, data))
    else:
        seconds = []
        for number in range(options.steps + 2):
            start = time.perf_counter()
            result["loss"] = step()
            if number >= 2:
                seconds.append(time.perf_counter() - start)
        result["step_seconds"] = statistics.median(seconds)
        result["samples_per_second"] = options.batch / result["step_seconds"]
        result["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


main()
