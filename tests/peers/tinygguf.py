# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file with random weights (about 5.5 MB) from a model folder of tinymodel.py.

Usage: tinygguf.py MODEL_DIR OUT_FILE

The weights come from a fixed seed. What such a model answers is noise, at the
speed and with the wire behaviour of the real engine.
"""

import json
import os
import sys

import gguf
import numpy as np


def read(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def add_metadata(writer, config):
    heads = config["num_attention_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_tokenizer(writer, tokenizer, config):
    vocabulary = tokenizer["model"]["vocab"]
    specials = {t["content"] for t in tokenizer["added_tokens"] if t["special"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if t in specials else normal for t in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(config["chat_template"])


def add_tensors(writer, config):
    rng = np.random.default_rng(1)
    hidden, feed, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]

    def matrix(name, rows, columns):
        writer.add_tensor(name + ".weight", rng.normal(0, 0.05, (rows, columns)).astype(np.float32))

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(hidden, dtype=np.float32))

    matrix("token_embd", vocab, hidden)
    norm("output_norm")
    matrix("output", vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        block = f"blk.{i}."
        norm(block + "attn_norm")
        matrix(block + "attn_q", hidden, hidden)
        matrix(block + "attn_k", kv, hidden)
        matrix(block + "attn_v", kv, hidden)
        matrix(block + "attn_output", hidden, hidden)
        norm(block + "ffn_norm")
        matrix(block + "ffn_gate", feed, hidden)
        matrix(block + "ffn_up", feed, hidden)
        matrix(block + "ffn_down", hidden, feed)


def main():
    folder, out = sys.argv[1], sys.argv[2]
    part = out + ".part"
    config = read(folder, "config.json")
    writer = gguf.GGUFWriter(part, "llama")
    add_metadata(writer, config)
    add_tokenizer(writer, read(folder, "tokenizer.json"), read(folder, "tokenizer_config.json"))
    add_tensors(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(part, out)


if __name__ == "__main__":
    main()
