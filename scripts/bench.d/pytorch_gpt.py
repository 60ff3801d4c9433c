# SPDX-License-Identifier: MIT
"""GPT-2 in plain eager PyTorch, as a careful user would write it: scaled_dot_product_attention, tied embeddings."""
import torch
import torch.nn.functional as F
from torch import nn

linear_by_onednn = False  # set before the first step


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
    if linear_by_onednn:
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
    """Tokens to logits; `first` and `last` say whether this part has the embeddings and the head.

    A part that has only one end has a copy of its own of the token embedding."""

    def __init__(self, sizes, blocks=None, first=True, last=True):
        super().__init__()
        self.first, self.last = first, last
        if first or last:
            self.token_embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        if first:
            self.position_embedding = nn.Embedding(sizes.sequence, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes.hidden, sizes.heads)
                                    for _ in range(sizes.layers if blocks is None else blocks))
        if last:
            self.final_norm = nn.LayerNorm(sizes.hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x):
        if self.first:
            x = self.token_embedding(x) + self.position_embedding.weight
        for block in self.blocks:
            x = block(x)
        if self.last:
            x = linear(self.final_norm(x), self.token_embedding.weight)
        return x


def loss_of(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def make_optimizer(parameters):
    parameters = list(parameters)
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
