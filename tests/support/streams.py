"""Where the residual stream can be met in some families, by their own names; and what sites write."""

from headlens.residual.stream import BY_TOKEN

# family -> the module whose input is the stream with the branch added, by layer
JOINED = {
    "bert": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "gpt2": "transformer.h.{}.ln_2",
    "llama": "model.layers.{}.post_attention_layernorm",
}


def by_site(lens, made):
    """The measures by token of every site, [part, token]."""
    rows = dict(iter(made.per_token.groupby(["stack", "layer"])))
    return {
        site: {
            name: rows[site.stack, site.layer][name].to_numpy().reshape(-1, len(made.tokens[site.stack]))
            for name in BY_TOKEN
        }
        for site in lens.anatomy.sites
    }
