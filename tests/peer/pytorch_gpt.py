# SPDX-License-Identifier: MIT
"""The independent side: Hugging Face's GPT-2 or Llama and PyTorch's AdamW, trained from an export of ours."""
import os

# Models come from folders here; nothing is to be asked of a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.utils import logging  # noqa: E402

from tiny_run import OPTIMIZER, TRAIN, learning_rate_at  # noqa: E402


logging.disable_progress_bar()


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).train()


def micro_batch_losses(model, batch):
    """The mean loss of each micro-batch, in order. Targets are given: the model's own would be shifted tokens."""
    tokens, targets = torch.tensor(batch["tokens"]), torch.tensor(batch["targets"])
    for rows in torch.arange(len(tokens)).split(TRAIN["micro_batch"]):
        logits = model(input_ids=tokens[rows]).logits
        yield F.cross_entropy(logits.flatten(0, 1), targets[rows].flatten())


def loss_of(model, batch):
    with torch.no_grad():
        losses = list(micro_batch_losses(model, batch))
    return (sum(losses) / len(losses)).item()


def train(model, batches):
    """One AdamW step a batch, from step 1. Returns [(loss, gradient norm before clipping)]."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["epsilon"])
    rows = []
    for step, batch in enumerate(batches, start=1):
        optimizer.zero_grad()
        micro_batches = len(batch["tokens"]) // TRAIN["micro_batch"]
        loss = 0.0
        for micro_batch_loss in micro_batch_losses(model, batch):
            (micro_batch_loss / micro_batches).backward()
            loss += micro_batch_loss.item() / micro_batches
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step)
        optimizer.step()
        rows.append((loss, norm.item()))
    return rows
