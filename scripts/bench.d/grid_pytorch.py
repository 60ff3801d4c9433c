# SPDX-License-Identifier: MIT
"""Trains a GPT-2 on several processes in eager PyTorch over gloo and prints one line of JSON about it.

grids.py starts all processes of a case, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. What each mode does is
what its documentation proposes: gradients of a micro-batch are summed over the ranks after the last one only, the
norm of the gradients is that of the whole model, tied embeddings of two stages have one gradient.
"""
import argparse
import json
import os
import resource
import statistics
import time

MODES = ("alone", "ddp", "fsdp2", "gpipe", "1f1b", "interleaved")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "global-batch", "micro-batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    return parser.parse_args()


options = parse_arguments()

import torch  # noqa: E402 (after the arguments: it takes a second)
import torch.distributed as dist  # noqa: E402

import pytorch_gpt  # noqa: E402


def random_tokens(samples):
    shape = (samples, options.sequence)
    return torch.randint(options.vocabulary, shape), torch.randint(options.vocabulary, shape)


class Replicated:
    """Every rank has the samples of its own; `alone` is one that nobody else hears of."""

    def __init__(self, ranks):
        model = pytorch_gpt.Gpt(options)
        if options.mode == "ddp":
            from torch.nn.parallel import DistributedDataParallel
            model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if options.mode == "fsdp2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            mesh = init_device_mesh("cpu", (ranks,))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        self.model = model
        self.optimizer = pytorch_gpt.make_optimizer(model.parameters())
        samples = options.global_batch // ranks
        self.micro_batches = [random_tokens(options.micro_batch) for _ in range(samples // options.micro_batch)]

    def sum_gradients(self, last):
        if options.mode == "ddp":
            self.model.require_backward_grad_sync = last
        if options.mode == "fsdp2":
            self.model.set_requires_gradient_sync(last)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss_sum = 0.0
        for number, (tokens, targets) in enumerate(self.micro_batches, start=1):
            self.sum_gradients(number == len(self.micro_batches))
            loss = pytorch_gpt.loss_of(self.model(tokens), targets) / len(self.micro_batches)
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss_sum


def blocks_of_parts(parts):
    """As even as it goes; the parts at the ends, which have embeddings and head too, get no more than the others."""
    share, more = divmod(options.layers, parts)
    inner_first = sorted(range(parts), key=lambda part: (part in (0, parts - 1), part))
    return [share + (inner_first.index(part) < more) for part in range(parts)]


class Pipelined:
    """One pipeline over all ranks; torch.distributed.pipelining has the schedules."""

    def __init__(self, ranks):
        from torch.distributed import pipelining
        self.rank, self.ranks = dist.get_rank(), ranks
        chunks = 2 if options.mode == "interleaved" else 1
        parts = ranks * chunks
        blocks = blocks_of_parts(parts)
        mine = range(self.rank, parts, ranks)
        self.models = [pytorch_gpt.Gpt(options, blocks[part], part == 0, part == parts - 1) for part in mine]
        stages = [pipelining.PipelineStage(model, part, parts, torch.device("cpu"))
                  for model, part in zip(self.models, mine)]
        micro_batches = options.global_batch // options.micro_batch
        if options.mode == "interleaved":
            self.schedule = pipelining.ScheduleInterleaved1F1B(stages, micro_batches, loss_fn=pytorch_gpt.loss_of)
        else:
            kind = pipelining.ScheduleGPipe if options.mode == "gpipe" else pipelining.Schedule1F1B
            self.schedule = kind(stages[0], micro_batches, loss_fn=pytorch_gpt.loss_of)
        self.parameters = [p for model in self.models for p in model.parameters()]
        self.optimizer = pytorch_gpt.make_optimizer(self.parameters)
        self.tied = [model.token_embedding.weight for model in self.models if model.first or model.last]
        for weight in self.tied:
            dist.broadcast(weight.data, src=0)
        self.tokens, self.targets = random_tokens(options.global_batch)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        if self.rank == 0:
            self.schedule.step(self.tokens)
        elif self.rank == self.ranks - 1:
            self.schedule.step(target=self.targets, losses=losses)
        else:
            self.schedule.step()
        for weight in self.tied:
            dist.all_reduce(weight.grad)
        # The norm of all stages; the second copy of the embedding is not counted.
        counted = [p.grad for p in self.parameters
                   if self.rank == 0 or not any(p is weight for weight in self.tied)]
        squares = torch.nn.utils.get_total_norm(counted) ** 2
        dist.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, 1.0, squares.sqrt())
        self.optimizer.step()
        return sum(loss.item() for loss in losses) / max(1, len(losses))


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    ranks = int(os.environ["WORLD_SIZE"])
    if options.mode != "alone":
        dist.init_process_group("gloo")
    if options.mode in ("alone", "ddp", "fsdp2"):
        trainer = Replicated(ranks)
    else:
        trainer = Pipelined(ranks)
    seconds = []
    for step in range(options.steps + 2):
        start = time.perf_counter()
        loss = trainer.step()
        if step >= 2:
            seconds.append(time.perf_counter() - start)
    step_seconds = statistics.median(seconds)
    if options.mode != "alone":
        dist.barrier()
        dist.destroy_process_group()
    print(json.dumps({"step_seconds": step_seconds, "loss": loss,
                      "tokens_per_second": options.global_batch * options.sequence / step_seconds,
                      "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main()
