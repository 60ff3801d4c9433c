# SPDX-License-Identifier: MIT
"""Bytes that eager PyTorch holds, from what its allocator reports."""
import torch


def bytes_between_steps(model, optimizer, data):
    """Parameters, buffers, optimizer states and data; gradients are left out."""
    tensors = [*model.parameters(), *model.buffers(), *data]
    tensors += [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def peak_bytes_of(step, live):
    """The most that is live during step(), `live` bytes at its start: allocations and frees, one after the other."""
    peak = live
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
