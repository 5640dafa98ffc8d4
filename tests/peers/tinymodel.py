# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny model folder (tokenizer, chat template, config; no weights).

Usage: tinymodel.py OUT_DIR

The tokenizer learns from Python's own standard library, so nothing is
downloaded and the vocabulary differs a little between Python versions. The
folder is written beside OUT_DIR first and renamed, so that a broken run leaves
nothing that looks finished.
"""

import glob
import json
import os
import shutil
import sys
import sysconfig

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 128, 256, 2, 4, 2
CONTEXT, VOCABULARY = 4096, 4096
SPECIALS = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train():
    files = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:120]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(
        files,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def tokenizer_config(tokenizer):
    added = {
        str(tokenizer.token_to_id(s)): dict(
            content=s, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True
        )
        for s in SPECIALS
    }
    return dict(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=SPECIALS[0],
        eos_token=SPECIALS[1],
        pad_token=SPECIALS[1],
        model_max_length=CONTEXT,
        chat_template=TEMPLATE,
        added_tokens_decoder=added,
    )


def model_config(tokenizer):
    return dict(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HIDDEN // HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        hidden_act="silu",
        tie_word_embeddings=True,
        torch_dtype="float32",
        bos_token_id=0,
        eos_token_id=1,
        attention_bias=False,
        mlp_bias=False,
    )


def main():
    out = sys.argv[1].rstrip("/")
    part = out + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    tokenizer = train()
    tokenizer.save(os.path.join(part, "tokenizer.json"))
    for name, content in (
        ("tokenizer_config.json", tokenizer_config(tokenizer)),
        ("config.json", model_config(tokenizer)),
        ("generation_config.json", dict(bos_token_id=0, eos_token_id=1)),
    ):
        with open(os.path.join(part, name), "w") as f:
            json.dump(content, f)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(part, out)


if __name__ == "__main__":
    main()
