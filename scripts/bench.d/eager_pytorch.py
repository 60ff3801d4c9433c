# SPDX-License-Identifier: MIT
"""Trains a GPT-2 in plain eager PyTorch on random tokens and prints one line of JSON about it.

compare.py starts one process of this for each measurement. The model, the optimizer and the loop are what
a careful user would write: scaled_dot_product_attention, tied embeddings, the fused AdamW.
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
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

resident_after_import = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def onednn_product(x, weight, bias=None):
    """x · weightᵀ + bias by oneDNN, on rows."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class OneDnnLinear(torch.autograd.Function):
    """oneDNN offers x · Wᵀ alone, so the backward transposes what it has to."""

    @staticmethod
    def forward(context, x, weight, bias):
        rows = x.reshape(-1, x.shape[-1])
        context.save_for_backward(rows, weight)
        context.has_bias = bias is not None
        return onednn_product(rows, weight, bias).view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(context, gradient):
        rows, weight = context.saved_tensors
        gradient_rows = gradient.reshape(-1, gradient.shape[-1])
        to_input = onednn_product(gradient_rows, weight.t().contiguous())
        to_weight = onednn_product(gradient_rows.t().contiguous(), rows.t().contiguous())
        to_bias = gradient_rows.sum(0) if context.has_bias else None
        return to_input.view(*gradient.shape[:-1], weight.shape[1]), to_weight, to_bias


def linear(x, weight, bias=None):
    if options.linear == "onednn":
        return OneDnnLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    def forward(self, x):
        return linear(x, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = Linear(hidden, 3 * hidden)
        self.projection = Linear(hidden, hidden)
        self.feed_forward_norm = nn.LayerNorm(hidden)
        self.up = Linear(hidden, 4 * hidden)
        self.down = Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        query, key, value = (part.view(batch, sequence, self.heads, -1).transpose(1, 2)
                             for part in self.qkv(self.attention_norm(x)).split(hidden, dim=2))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(options.vocabulary, options.hidden)
        self.position_embedding = nn.Embedding(options.sequence, options.hidden)
        self.blocks = nn.ModuleList(Block(options.hidden, options.heads) for _ in range(options.layers))
        self.final_norm = nn.LayerNorm(options.hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.token_embedding(tokens) + self.position_embedding.weight
        for block in self.blocks:
            x = block(x)
        logits = linear(self.final_norm(x), self.token_embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def run_step(model, optimizer, micro_batches):
    optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    for tokens, targets in micro_batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = model(tokens, targets) / len(micro_batches)
        loss.backward()
        loss_sum += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss_sum


def live_bytes(model, optimizer, micro_batches):
    """What is live between steps, gradients left out: parameters, optimizer states, tokens."""
    tensors = list(model.parameters()) + [t for pair in micro_batches for t in pair]
    tensors += [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return sum(t.untyped_storage().nbytes() for t in tensors)


def peak_bytes_of_a_step(model, optimizer, micro_batches):
    """Runs one step under the profiler and sums what the allocator reports of every allocation and free."""
    optimizer.zero_grad(set_to_none=True)
    live = peak = live_bytes(model, optimizer, micro_batches)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run_step(model, optimizer, micro_batches)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt()
    optimizer = make_optimizer(model)
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
