#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of Hugging Face that are imported: their logits, and a step of fine-tuning, beside transformers and PyTorch.

Random GPT-2s and Llamas are saved by transformers, in several files and in half precision among them, imported, and
run on the same tokens in float32; then one AdamW step is taken by both. Needs the environment that
`scripts/bench --environment-only` makes, as scripts/test --peer does.
"""
import array
import os
import pathlib
import shutil
import subprocess
import sys

from peer_environment import enter_environment

LOGITS = 1e-5  # absolute, of logits whose largest are about 5
WEIGHTS = 2e-5  # of a weight after a step that moves most by about 1e-3
RATE = 1e-3
# Gradients near zero would be moved by their rounding alone if it were smaller.
EPSILON = 1e-5
BATCH = 4


def models():
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    gpt = dict(n_layer=2, n_embd=64, n_head=4, n_positions=32, vocab_size=256, resid_pdrop=0.0, embd_pdrop=0.0,
               attn_pdrop=0.0, initializer_range=0.15, bos_token_id=None, eos_token_id=None)
    llama = dict(num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=32, vocab_size=256, initializer_range=0.15)
    yield "gpt2", lambda: GPT2LMHeadModel(GPT2Config(**gpt)), "float32", None
    yield "gpt2-sharded-bfloat16", lambda: GPT2LMHeadModel(GPT2Config(**gpt)), "bfloat16", "60KB"
    yield "llama", lambda: LlamaForCausalLM(LlamaConfig(**llama)), "float32", None
    yield "llama-sharded-float16", lambda: LlamaForCausalLM(LlamaConfig(**llama)), "float16", "60KB"
    yield "llama-tied-bfloat16", lambda: LlamaForCausalLM(
        LlamaConfig(**llama | dict(tie_word_embeddings=True, rms_norm_eps=1e-5,
                                   rope_parameters={"rope_type": "default", "rope_theta": 500000.0}))), "bfloat16", None


def keys_of(shown):
    """The options that say [model] as `checkpoint import` has printed it."""
    lines = shown.split("[model]\n")[1].splitlines()
    pairs = [line.split(" = ") for line in lines if " = " in line]
    return [word for key, value in pairs for word in (f"--model.{key.strip()}", value.strip().strip('"'))]


def compare(name, make, dtype, shard, checks):
    import torch
    from transformers import AutoModelForCausalLM
    from tiny_run import TinyRun

    print(f"--- {name}")
    run = TinyRun(name, "float32", threads=2)
    theirs = run.folder / "theirs"
    torch.manual_seed(7)
    made = make()
    with torch.no_grad():
        for parameter in made.parameters():  # norms and biases, too, are to be what nobody would guess
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    made.to(getattr(torch, dtype)).save_pretrained(theirs, **({"max_shard_size": shard} if shard else {}))
    files = len(list(theirs.glob("*.safetensors")))
    checks.true(f"saved in {files} files", (files > 2) == (shard is not None), str(files))
    model = AutoModelForCausalLM.from_pretrained(theirs, dtype=torch.float32).train()

    imported = run.folder / "imported"
    keys = keys_of(run.call("checkpoint", "import", "--from", "huggingface", theirs, "--output", imported))
    tokens = torch.randint(256, (1, 32))
    with torch.no_grad():
        wanted = model(input_ids=tokens).logits[0].double()
    helper = pathlib.Path(os.environ["GARONNE_BINARY"]).parents[1] / "tests/model_logits"
    raw = subprocess.run([helper, imported, *map(str, tokens[0].tolist())], check=True, stdout=subprocess.PIPE).stdout
    ours = torch.tensor(array.array("d", raw)).view(wanted.shape)
    error, largest = (ours - wanted).abs().max().item(), wanted.abs().max().item()
    checks.true(f"logits differ by {error:.1e}, of which the largest is {largest:.2f}", error <= LOGITS and largest > 1)

    directory = run.folder / "tuned"
    run.call("train", run.run_file, *keys, "--run.directory", directory, "--init-from", imported, "--train.steps", 1,
             "--train.global_batch", BATCH, "--train.micro_batch", 2, "--checkpoint.every", 1,
             "--optimizer.warmup_steps", 0, "--optimizer.schedule", "constant", "--optimizer.learning_rate", RATE,
             "--optimizer.epsilon", EPSILON, "--optimizer.weight_decay", 0.1, "--optimizer.clip_norm", 0)
    import json
    batch = json.loads(run.call("data", "batch", run.run_file, *keys, "--train.global_batch", BATCH,
                                "--train.micro_batch", 2, "--step", 1, "--json"))
    target = run.folder / "tuned-export"
    run.call("checkpoint", "export", directory, "--to", "huggingface", target)
    exported = dict(AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).named_parameters())

    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=EPSILON)
    logits = model(input_ids=torch.tensor(batch["tokens"])).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(batch["targets"]).flatten()).backward()
    optimizer.step()
    moved = max((value - before[key]).abs().max().item() for key, value in model.named_parameters())
    worst = max((exported[key] - value).abs().max().item() for key, value in model.named_parameters())
    checks.true(f"a step moves weights by up to {moved:.1e}", moved > RATE / 2)
    checks.true(f"fine-tuned weights differ by {worst:.1e} at most", worst <= WEIGHTS)
    shutil.rmtree(run.folder)


TEXTS = ("The plan", " leading space", "漢字 é", "two  spaces", "trailing ", "ﬁne Å", "a\nb", "", "unk 🙂 x")


def exported_tokenizers(checks):
    """What AutoTokenizer makes of the exports of models of SentencePiece, beside SentencePiece itself."""
    import sentencepiece
    from sentencepiece_kinds import KINDS, train
    from transformers import AutoTokenizer
    from tiny_run import LLAMA, TinyRun, tiny_text

    run = TinyRun("sentencepiece", "float32", threads=1, model=LLAMA)
    lines = tiny_text().splitlines() + ["漢字 kanji é ﬁne ½", "ﬁ Ａ é"] * 20
    for kind in KINDS:
        path = run.folder / f"{kind}.model"
        path.write_bytes(train(kind, lines, 200))
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        tokens = run.folder / f"{kind}.h5"
        run.call("data", "text", run.folder / "text.txt", "--output", tokens, "--tokenizer", path)
        directory = run.folder / f"run-{kind}"
        run.call("train", run.run_file, "--run.directory", directory, "--data.path", tokens, "--train.steps", 1)
        target = run.folder / f"export-{kind}"
        shown = run.call("checkpoint", "export", directory, "--to", "huggingface", target)
        theirs = AutoTokenizer.from_pretrained(target)
        differ = [text for text in TEXTS if theirs(text)["input_ids"] != processor.encode(text)]
        wanted = [" leading space"] if "leaves out a space" in shown else []
        checks.true(f"{kind}: {type(theirs).__name__} has the ids of SentencePiece but for {wanted}", differ == wanted, str(differ))
        shows_bytes = [text for text in TEXTS if "<0x" in theirs.decode(theirs(text)["input_ids"])]
        checks.true(f"{kind}: bytes are shown as text, or the export says it", not shows_bytes or "<0x0A>" in shown)
    shutil.rmtree(run.folder)


def exported_byte_levels(checks):
    """What transformers makes of exports with tokenizers of Hugging Face: the ids of `tokenizers` itself, and the greedy
    text of `eval`, which ends where the generation_config.json has it end."""
    import json
    import torch
    from tokenizer_kinds import make_tokenizer, train_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from tiny_run import LLAMA, MODEL, TinyRun, tiny_text

    texts = TEXTS + ("DON'T 's 12345678", "x  <left> y <right>  z<|both|>", "a <|endoftext|> b", "e\u0301 \u212b\r\n\t x")
    lines = tiny_text().splitlines() + ["漢字 kanji é ﬁne ½ DON'T 1234"] * 20
    for kind, model in (("gpt2", MODEL), ("gpt2", LLAMA), ("llama3", LLAMA), ("qwen", LLAMA)):
        name = f"{kind}-{model['kind']}"
        run = TinyRun(name, "float32", threads=1, model=model)
        original = make_tokenizer(kind, train_model(lines, 400, kind))
        original.save(str(run.folder / "tokenizer.json"))
        # Short enough that a model learns where it ends.
        (run.folder / "short.txt").write_text("the river runs under a slow bridge and a stone is light")
        run.call("data", "text", *[run.folder / "short.txt"] * 64, "--output", run.folder / "short.h5", "--tokenizer",
                 run.folder / "tokenizer.json")
        run.call("train", run.run_file, "--data.path", run.folder / "short.h5", "--train.steps", 60,
                 "--optimizer.learning_rate", 1e-2)
        target = run.folder / "export"
        run.call("checkpoint", "export", run.directory, "--to", "huggingface", target)
        theirs = AutoTokenizer.from_pretrained(target)
        differ = [text for text in texts if theirs(text)["input_ids"] != original.encode(text, add_special_tokens=False).ids]
        checks.true(f"{name}: {type(theirs).__name__} has the ids of tokenizers", not differ, str(differ))
        loaded = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
        prompt = theirs("the river", return_tensors="pt").input_ids
        wanted = loaded.generate(prompt, max_new_tokens=100, do_sample=False)[0][prompt.shape[1]:].tolist()
        greedy = ("--tokens", 100, "--temperature", 0, "--json")
        ids = ",".join(map(str, prompt[0].tolist()))
        ours = json.loads(run.call("eval", run.directory, "--ids", "--generate", ids, *greedy))["generated_ids"]
        checks.true(f"{name}: generate() writes the {len(ours)} tokens of eval", ours == wanted, f"{wanted} and {ours}")
        ended = len(wanted) < 100 and wanted[-1] == original.token_to_id("<|endoftext|>")
        checks.true(f"{name}: the text is ended by the model", ended, str(wanted))
        text = json.loads(run.call("eval", run.directory, "--generate", "the river", *greedy))["generated"]
        decoded = theirs.decode(wanted, skip_special_tokens=True)
        checks.true(f"{name}: and is shown as the same text", text == decoded, f"{decoded!r} and {text!r}")
        shutil.rmtree(run.folder)


def main():
    enter_environment()
    os.environ["HF_HUB_OFFLINE"] = "1"
    from tiny_run import Checks
    from transformers.utils import logging

    logging.disable_progress_bar()
    checks = Checks()
    for case in models():
        compare(*case, checks)
    exported_tokenizers(checks)
    exported_byte_levels(checks)
    checks.finish()


main()
