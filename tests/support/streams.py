"""Where the residual stream can be met in some families, by their own names."""

# family -> the module whose input is the stream with the branch added, by layer
JOINED = {
    "bert": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "gpt2": "transformer.h.{}.ln_2",
    "llama": "model.layers.{}.post_attention_layernorm",
}
