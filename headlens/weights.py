"""The weights of one head: its slices of W_Q, W_K, W_V and W_O, and the two maps that they make together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.anatomy import Anatomy
from headlens.errors import ModelError
from headlens.factored import Factored
from headlens.heads import Head, Site
from headlens.layout import Layout, Places, layouts
from headlens.lens import Lens
from headlens.linear_norm import Norm, as_read, norms_before
from headlens.numeric import broken_parameter, not_numbers
from headlens.offloaded import weight_of
from headlens.plain_layers import output_matrix
from headlens.writing import Writing


@dataclass(frozen=True, eq=False)
class Ends:
    """What stands before and after all heads of a site on the way from a token to a token.

    Args:
        embedding: what tokens enter the residual stream as, [vocabulary, model width]: rows of the table,
            through the norm right behind it where there is one (BLOOM).
        before: the norm that values are read through; None where there is none.
        after: the final norm.
        unembedding: what logits are read with, [vocabulary, model width].
    """

    embedding: Tensor
    before: Norm | None
    after: Norm
    unembedding: Tensor


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The weights of one head, as x W (a row of x is a token).

    Heads of a group share W_K and W_V. What a family does between these matrices is not in them: rotary
    embeddings and norms of queries and keys (Qwen 3, Gemma 3) come after W_Q and W_K, so `qk` is then not all
    that decides where a head looks.

    Args:
        head: which head.
        query: W_Q, [model width, width].
        key: W_K, [model width, width].
        value: W_V, [model width, value width].
        output: W_O, [value width, model width].
        query_bias: [width]; None where the layer has none, as the next two.
        key_bias: [width].
        value_bias: [value width]. (The bias of W_O belongs to no head.)
        ends: embedding, norms and unembedding; None where the way to the logits cannot be told.
    """

    head: Head
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None
    value_bias: Tensor | None = None
    ends: Ends | None = None

    @property
    def qk(self) -> Factored:
        """W_Q W_K^T, which makes scores of two tokens' states, [model width, model width]."""
        return Factored(self.query, self.key.T)

    @property
    def ov(self) -> Factored:
        """W_V W_O, which makes what a head writes of what it reads, [model width, model width]."""
        return Factored(self.value, self.output)

    @cached_property
    def token_ov(self) -> Factored | None:
        """From the token that a head attends to, to the logits of all tokens, [vocabulary, vocabulary].

        W_E W_V W_O W_U with the norm before the layer and the final norm folded in as linear maps (their
        centring and weights; a scale does not change the sign or the share of any eigenvalue). None where
        the model has no unembedding that reads the residual stream through one norm (BERT).
        """
        ends = self.ends
        if ends is None:
            return None
        value = self.value if ends.before is None else ends.before.into(self.value)
        written = ends.after.directed(self.output)
        return Factored(ends.embedding.to(value) @ value, written @ ends.unembedding.to(written).T)

    @property
    def copying_score(self) -> float:
        """How much attending to a token raises that same token, -1..1 (Elhage et al. 2021).

        See `Factored.copying_score`, of `token_ov`; NaN where that is None. Position and what earlier layers
        add are not looked at.
        """
        return math.nan if self.token_ov is None else self.token_ov.copying_score()


_known: WeakKeyDictionary[PreTrainedModel, tuple[Anatomy, dict[Site, Layout], dict[Site, Ends]]]
_known = WeakKeyDictionary()


def weights_of(lens: Lens, head: Head) -> HeadWeights:
    """Get the weights of one head.

    Args:
        lens: the model.
        head: the head.

    Returns:
        Its weights, in float32 or what the model has beyond, on the model's device.

    Raises:
        ModelError: the head has no matrices of its own (several layers make its query, say), or they are
            quantised or adapted, or no numbers.
    """
    part = next(part for part in lens.anatomy.parts if head in part.site.heads)
    site = part.site
    found, ends = _facts(lens)
    layout, model = found.get(site), lens.model
    if layout is None or not part.projections.output:
        raise ModelError(
            f"The heads of {site} in {lens.anatomy.architecture} have no W_Q, W_K, W_V and W_O of their own: "
            "these are not made by one linear layer each.",
            "Models built like BERT, GPT-2, Llama or T5 have them.",
        )
    shared = head.head // (site.n_heads // site.n_kv_heads)
    query, query_bias = _slice(model, layout.query, head.head)
    key, key_bias = _slice(model, layout.key, shared)
    value, value_bias = _slice(model, layout.value, shared)
    rows = slice(head.head * site.head_width, (head.head + 1) * site.head_width)
    output = _matrix(model, part.projections.output)[rows]
    made = {"W_Q": query, "W_K": key, "W_V": value, "W_O": output}
    if broken := broken_parameter(made.items()):
        raise not_numbers(head, broken)
    return HeadWeights(head, query, key, value, output, query_bias, key_bias, value_bias, ends=ends.get(site))


def _facts(lens: Lens) -> tuple[dict[Site, Layout], dict[Site, Ends]]:
    """What dry runs find, once for each model as it is."""
    known = _known.get(lens.model)
    if known is None or known[0] is not lens.anatomy:
        found = layouts(lens)
        known = _known[lens.model] = (lens.anatomy, found, _ends(lens, found))
    return known[1:]


def _ends(lens: Lens, found: dict[Site, Layout]) -> dict[Site, Ends]:
    writing = Writing.of(lens)
    embedding = weight_of(lens.model.get_input_embeddings())
    if writing is None or embedding is None or embedding.shape[-1] != writing.unembedding.shape[-1]:
        return {}
    embedding = as_read(lens, embedding)
    before = norms_before(lens, [layout.value.layer for layout in found.values()])
    return {
        site: Ends(embedding, before.get(layout.value.layer), writing.norm, writing.unembedding)
        for site, layout in found.items()
        if site in writing.outputs and site.stack != "cross"  # that one reads another stack
    }


def _slice(model: PreTrainedModel, places: Places, head: int) -> tuple[Tensor, Tensor | None]:
    rows = places.rows[head]
    matrix = _matrix(model, places.layer)
    bias = weight_of(model.get_submodule(places.layer), "bias")
    rows = rows.to(matrix.device)
    return matrix[:, rows], None if bias is None else _at_least_float32(bias)[rows]


def _matrix(model: nn.Module, path: str) -> Tensor:
    matrix = output_matrix(model.get_submodule(path))
    if matrix is None:
        kind = type(model.get_submodule(path)).__name__
        raise ModelError(
            f"{path} is a {kind}, not a plain linear layer, so its weights are not one matrix.",
            "Load the model without quantisation, and merge adapters first.",
        )
    return _at_least_float32(matrix)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.element_size() >= 4 else tensor.float()
