# SPDX-License-Identifier: MIT
"""Models as Hugging Face keeps them, in plain Python: safetensors, random Llamas, and what a Llama computes."""
import array
import json
import math
import pathlib
import random
import struct


def bits(values, dtype):
    """The bytes of floats in a type; those of F32 that BF16 has no room for are cut off."""
    if dtype == "F32":
        return array.array("f", values).tobytes()
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("H", (word >> 16 for word in words)).tobytes()


def write_safetensors(path, tensors):
    """`tensors`: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path):
    content = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    return {name: (entry["dtype"], entry["shape"], content[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in json.loads(content[8:begin]).items() if name != "__metadata__"}


def cut_into_shards(folder, count):
    """model.safetensors of a folder as `count` files with their index, as large models come."""
    folder = pathlib.Path(folder)
    tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {}
    for shard in range(count):
        file = f"model-{shard + 1:05}-of-{count:05}.safetensors"
        mine = names[shard::count]
        write_safetensors(folder / file, {name: tensors[name] for name in mine})
        places |= {name: file for name in mine}
    total = sum(len(content) for _, _, content in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": places}))


def llama_config(**changes):
    return {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
            "max_position_embeddings": 8, "vocab_size": 256, "tie_word_embeddings": False, "hidden_act": "silu",
            "attention_bias": False, "mlp_bias": False} | changes


def random_llama(folder, config, dtype="F32", seed=1):
    """Writes one, and returns its weights as they are in the file: name -> rows of numbers."""
    dice = random.Random(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {prefix + "input_layernorm.weight": [hidden], prefix + "post_attention_layernorm.weight": [hidden],
                   prefix + "self_attn.q_proj.weight": [hidden, hidden], prefix + "self_attn.k_proj.weight": [kv, hidden],
                   prefix + "self_attn.v_proj.weight": [kv, hidden], prefix + "self_attn.o_proj.weight": [hidden, hidden],
                   prefix + "mlp.gate_proj.weight": [inner, hidden], prefix + "mlp.up_proj.weight": [inner, hidden],
                   prefix + "mlp.down_proj.weight": [hidden, inner]}
    tensors, weights = {}, {}
    for name, shape in shapes.items():
        # Numbers that every type has.
        values = [dice.randrange(-12, 13) / 32 + (1 if len(shape) == 1 else 0) for _ in range(math.prod(shape))]
        tensors[name] = (dtype, shape, bits(values, dtype))
        width = shape[-1]
        weights[name] = [values[i:i + width] for i in range(0, len(values), width)] if len(shape) == 2 else values
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    write_safetensors(pathlib.Path(folder) / "model.safetensors", tensors)
    return weights


def llama_loss(config, weights, tokens, targets):
    """Mean negative logarithm of the targets' probabilities of one sample, as LlamaForCausalLM computes it: number i of a
    head is turned with number i + half of it."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads
    half = size // 2

    def product(rows, x):
        return [sum(a * b for a, b in zip(row, x)) for row in rows]

    def norm(x, gain):
        scale = 1 / math.sqrt(sum(a * a for a in x) / len(x) + config["rms_norm_eps"])
        return [a * scale * g for a, g in zip(x, gain)]

    def turned(head, position):
        out = list(head)
        for i in range(half):
            angle = position * config["rope_theta"] ** (-2 * i / size)
            out[i] = head[i] * math.cos(angle) - head[i + half] * math.sin(angle)
            out[i + half] = head[i + half] * math.cos(angle) + head[i] * math.sin(angle)
        return out

    def cut(x):
        return [x[i:i + size] for i in range(0, len(x), size)]

    table = weights["model.embed_tokens.weight"]
    states = [list(table[token]) for token in tokens]
    for layer in range(config["num_hidden_layers"]):
        w = {name.removeprefix(f"model.layers.{layer}."): value for name, value in weights.items()
             if name.startswith(f"model.layers.{layer}.")}
        keys, values = [], []
        for position, x in enumerate(states):
            normed = norm(x, w["input_layernorm.weight"])
            queries = [turned(head, position) for head in cut(product(w["self_attn.q_proj.weight"], normed))]
            keys.append([turned(head, position) for head in cut(product(w["self_attn.k_proj.weight"], normed))])
            values.append(cut(product(w["self_attn.v_proj.weight"], normed)))
            attended = []
            for number, query in enumerate(queries):
                group = number // (heads // kv_heads)
                scores = [sum(a * b for a, b in zip(query, key[group])) / math.sqrt(size) for key in keys]
                most = max(scores)
                shares = [math.exp(score - most) for score in scores]
                total = sum(shares)
                attended += [sum(share * value[group][i] for share, value in zip(shares, values)) / total
                             for i in range(size)]
            states[position] = [a + b for a, b in zip(x, product(w["self_attn.o_proj.weight"], attended))]
        for position, x in enumerate(states):
            normed = norm(x, w["post_attention_layernorm.weight"])
            gates = product(w["mlp.gate_proj.weight"], normed)
            ups = product(w["mlp.up_proj.weight"], normed)
            inner = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(gates, ups)]
            states[position] = [a + b for a, b in zip(x, product(w["mlp.down_proj.weight"], inner))]
    head = table if config["tie_word_embeddings"] else weights["lm_head.weight"]
    loss = 0.0
    for x, target in zip(states, targets):
        logits = product(head, norm(x, weights["model.norm.weight"]))
        most = max(logits)
        loss += most + math.log(sum(math.exp(logit - most) for logit in logits)) - logits[target]
    return loss / len(tokens)
