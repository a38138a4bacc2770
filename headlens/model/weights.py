"""The weights of one head: query, key, value and output, found by a run of a few tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlens.errors import ModelError
from headlens.model.anatomy import Anatomy, Part
from headlens.model.attention_call import AttentionCall, route
from headlens.model.devices import exactly, in_memory, weight_of
from headlens.model.finite import broken_parameter, not_numbers
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.trace import Log, dry, logging, patterns_of_a_run, run
from headlens.model.unembedding import Norm, Writing, as_read, norms_before


@dataclass(frozen=True, eq=False)
class _Ends:
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
    ends: _Ends | None = None

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


_known: WeakKeyDictionary[PreTrainedModel, tuple[Anatomy, dict[Site, Layout], dict[Site, _Ends]]]
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


def _facts(lens: Lens) -> tuple[dict[Site, Layout], dict[Site, _Ends]]:
    """What dry runs find, once for each model as it is."""
    known = _known.get(lens.model)
    if known is None or known[0] is not lens.anatomy:
        found = layouts(lens)
        known = _known[lens.model] = (lens.anatomy, found, _ends(lens, found))
    return known[1:]


def _ends(lens: Lens, found: dict[Site, Layout]) -> dict[Site, _Ends]:
    writing = Writing.of(lens)
    embedding = weight_of(lens.model.get_input_embeddings())
    if writing is None or embedding is None or embedding.shape[-1] != writing.unembedding.shape[-1]:
        return {}
    embedding = as_read(lens, embedding)
    before = norms_before(lens, [layout.value.layer for layout in found.values()])
    return {
        site: _Ends(embedding, before.get(layout.value.layer), writing.norm, writing.unembedding)
        for site, layout in found.items()
        if site in writing.outputs and site.stack != "cross"  # that one reads another stack
    }


def _slice(model: PreTrainedModel, places: _Places, head: int) -> tuple[Tensor, Tensor | None]:
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


# ---- A large matrix that is a product of two thin ones, as every head's W_Q W_K^T and W_V W_O is


@dataclass(frozen=True, eq=False)
class Factored:
    """The product of a tall and a wide matrix, kept as its factors.

    Args:
        left: [rows, inner].
        right: [inner, columns]; `inner` is a head's width, much less than rows and columns.
    """

    left: Tensor
    right: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the product."""
        return self.left.shape[0], self.right.shape[1]

    def matrix(self) -> Tensor:
        """Multiply out.

        Returns:
            [rows, columns]: large where these are a vocabulary.
        """
        return self.left @ self.right

    def singular_values(self) -> Tensor:
        """Compute the singular values that can differ from 0.

        Returns:
            Falling, [inner], in float64.
        """
        tall, wide = exactly(self.left), exactly(self.right)
        # QR turns both factors into squares of the inner size, without changing singular values
        inner = torch.linalg.qr(tall).R @ torch.linalg.qr(wide.T).R.T
        values: Tensor = torch.linalg.svdvals(inner)
        return values

    def eigenvalues(self) -> Tensor:
        """Compute the eigenvalues that can differ from 0: those of right @ left, which is small.

        Returns:
            Complex, by falling modulus, [inner], in double precision.

        Raises:
            ValueError: the product is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"Only a square matrix has eigenvalues, this one has the shape {self.shape}.")
        found: Tensor = torch.linalg.eigvals(exactly(self.right) @ exactly(self.left))
        return found[found.abs().argsort(descending=True, stable=True)]

    def copying_score(self) -> float:
        """Measure whether the map makes more of what it is given, or less.

        Elhage et al. 2021: the real part of the sum of the eigenvalues over the sum of their moduli. It
        misleads where few directions count: all eigenvalues count by their size alone, and a map that only
        scales one direction up has 1.

        Returns:
            1 where all eigenvalues are positive (it copies), -1 where all are negative, about 0 where they
            lie all around; NaN for a map to nothing.
        """
        found = self.eigenvalues()
        total = float(found.abs().sum())
        return float(found.real.sum()) / total if total > 0 else math.nan


# ---- Which outputs of which linear layer are the query, the key and the value of each head


@dataclass(frozen=True, slots=True)
class _Places:
    """Where one role (query, key or value) of one site's heads is made.

    Args:
        layer: path of the linear layer.
        rows: the layer's outputs for each head (for key and value each key-value head), in rising order,
            [head, width].
    """

    layer: str
    rows: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the query, the key and the value of one site's heads are made.

    Args:
        query: [head, key width].
        key: [key-value head, key width].
        value: [key-value head, value width].
    """

    query: _Places
    key: _Places
    value: _Places

    @property
    def roles(self) -> tuple[_Places, _Places, _Places]:
        """All three."""
        return self.query, self.key, self.value


def layouts(lens: Lens) -> dict[Site, Layout]:
    """Find out by a run of a few tokens how a model's projections are laid out.

    Args:
        lens: the model, with its weights.

    Returns:
        For every site where its heads are made. Sites are left out whose query, key or value is not made by
        one linear layer each (DeepSeek's are made by several), or whose parts cannot be told apart.
    """
    found = _by_interface(lens) if lens.anatomy.by_interface else _by_hooks(lens)
    return {site: layout for site, layout in found.items() if layout is not None}


def _by_interface(lens: Lens) -> dict[Site, Layout | None]:
    waiting = list(lens.anatomy.parts)  # calls come in the order of the sites
    found: dict[Site, Layout | None] = {}
    log = Log()

    def attend(call: AttentionCall) -> Tensor:
        part = waiting.pop(0)
        outputs = {linear.path: linear.output for linear in log.linears}
        places = []
        for layers, tensor in zip(_layers(part), (call.query, call.key, call.value), strict=True):
            rows = [_touched(tensor[0, head], layers, outputs).any(0) for head in range(tensor.shape[1])]
            places.append(_places(layers, rows, tensor.shape[-1]))
        found[part.site] = _layout(places)
        log.linears.clear()
        batch, heads, n_queries, _ = call.query.shape
        return call.value.new_ones(batch, n_queries, heads, call.value.shape[-1])

    with dry(lens.model), logging(lens.model, log), route(lens.model, attend, lens.anatomy.dense_masks):
        run(lens.model)
    return found


def _by_hooks(lens: Lens) -> dict[Site, Layout | None]:
    with patterns_of_a_run(lens.model) as (patterns, log):
        outputs = {linear.path: linear.output for linear in log.linears}
        inputs = {linear.path: linear.input for linear in log.linears}
        return {
            part.site: _from_pattern(part, pattern, inputs[part.projections.output], outputs)
            for part, pattern in zip(lens.anatomy.parts, patterns, strict=True)
        }


def _from_pattern(
    part: Part, pattern: Tensor, joined: Tensor, outputs: Mapping[str, Tensor]
) -> Layout | None:
    """Tell the roles by what the last query's pattern and output depend on.

    Of earlier tokens they depend on nothing but keys (the pattern) and keys and values (the output).
    """
    site, (query, key, value) = part.site, _layers(part)
    heads = joined.reshape(*joined.shape[:-1], site.n_heads, site.head_width)  # [1, query, head, width]
    rows: tuple[list[Tensor], ...] = ([], [], [])
    for head in range(site.n_heads):
        looked, read = pattern[0, head, -1], heads[0, -1, head]
        keys = _touched(looked, key, outputs)[:-1].any(0)
        queries, values = _touched(looked, query, outputs)[-1], _touched(read, value, outputs)[:-1].any(0)
        rows[0].append(queries & ~keys if query == key else queries)
        rows[1].append(keys)
        rows[2].append(values & ~keys if value == key else values)
    group = site.n_heads // site.n_kv_heads
    return _layout(
        [
            _places(query, rows[0], part.key_width),
            _places(key, rows[1][::group], part.key_width),
            _places(value, rows[2][::group], site.head_width),
        ]
    )


def _layers(part: Part) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    where = part.projections
    return where.query, where.key, where.value


def _touched(tensor: Tensor, layers: Sequence[str], outputs: Mapping[str, Tensor]) -> Tensor:
    """Which outputs of a layer a tensor depends on, bool [token, output]; of several layers, of the last."""
    if not layers or layers[-1] not in outputs:
        return torch.zeros(1, 0, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)  # a plain sum of a pattern's row is always 1
    weights = torch.rand(tensor.shape, generator=generator).to(tensor) + 0.5
    (gradient,) = torch.autograd.grad(
        (tensor * weights).sum(), outputs[layers[-1]], retain_graph=True, allow_unused=True
    )
    output = outputs[layers[-1]]
    return (torch.zeros_like(output) if gradient is None else gradient)[0] != 0


def _places(layers: Sequence[str], heads: Sequence[Tensor], width: int) -> _Places | None:
    """Gather each head's rows; None where several layers make them, or they are not `width` each."""
    if len(layers) != 1 or any(int(rows.sum()) != width for rows in heads):
        return None
    rows = torch.stack([rows.nonzero()[:, 0] for rows in heads]).cpu()
    return _Places(layers[0], rows) if len(set(rows.flatten().tolist())) == rows.numel() else None


def _layout(places: Sequence[_Places | None]) -> Layout | None:
    query, key, value = places
    return None if query is None or key is None or value is None else Layout(query, key, value)


# ---- Linear layers whose weights are one matrix: of torch, of transformers, or of a family's own making


def input_axis(layer: nn.Module) -> int | None:
    """Tell along which axis of its weights a linear layer's inputs lie.

    Args:
        layer: the layer.

    Returns:
        1 for weights [outputs, inputs] (`nn.Linear`), 0 for [inputs, outputs] (`Conv1D`); None where the
        layer does something else with its weights (quantised, adapted).
    """
    if type(layer) in (nn.Linear, Conv1D):
        return 1 if type(layer) is nn.Linear else 0
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return next((axis for axis in (1, 0) if _multiplies_by(layer, _turned(weight, axis))), None)


def output_matrix(layer: nn.Module) -> Tensor | None:
    """Get the weights of a linear layer, W_O say, as the textbook writes them: x W.

    Args:
        layer: the layer.

    Returns:
        [inputs, outputs]; of W_O the rows of one head stand together. None where the layer does something
        else with its weights (quantised, adapted).
    """
    with in_memory(layer):
        weight: Any = getattr(layer, "weight", None)
        axis = input_axis(layer)
    return None if axis is None else _turned(weight, axis)


def _turned(weight: Tensor, axis: int) -> Tensor:
    return weight.detach().T if axis == 1 else weight.detach()


def _multiplies_by(layer: nn.Module, matrix: Tensor) -> bool:
    """Whether a layer of a family's own making does what a plain one with this matrix does."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(2, matrix.shape[0], generator=generator).to(matrix)
    with torch.no_grad():
        try:
            found = layer.forward(probe) - layer.forward(torch.zeros_like(probe))  # no call: hooks stay out
        except (RuntimeError, TypeError, ValueError):  # it takes inputs of another width, or more of them
            return False
    expected = probe @ matrix
    near = max(1e-4, 4 * torch.finfo(matrix.dtype).eps)
    return found.shape == expected.shape and bool((found - expected).norm() <= near * expected.norm())


# ---- How long what a key hands over is: the other half of what a head reads, beside its weights


def handed_over(output: nn.Module, values: Tensor, n_heads: int) -> Tensor:
    """Measure ``|f(x)|`` of every key for every head, where f(x) = (x W_V + b_V) W_O of that head.

    What a head adds for one key is its weight times f(x), so a large weight on a short f(x) adds little
    (Kobayashi et al. 2020). The bias of W_O belongs to no head and is left out, and so is a norm that stands
    before or after W_O (BitNet, Gemma 3).

    Args:
        output: W_O, which takes the heads side by side.
        values: x W_V + b_V of each key-value head, [kv head, key, width].
        n_heads: of the query heads; each key-value head serves the same number of them.

    Returns:
        Euclidean lengths, float32 [head, key].
    """
    values = values.repeat_interleave(n_heads // values.shape[0], dim=0)  # [head, key, width]
    matrix = output_matrix(output)
    if matrix is None:
        return _by_running(output, values)
    slices = matrix.view(n_heads, values.shape[-1], -1)  # [head, width, model width]
    return torch.stack(
        [(mine.float() @ part.float()).norm(dim=-1) for mine, part in zip(values, slices, strict=True)]
    )


def _by_running(output: nn.Module, values: Tensor) -> Tensor:
    """The same through the layer itself, quantised or adapted: one head at a time, the others silent."""
    n_heads, n_keys, width = values.shape
    nothing = output(values.new_zeros(1, n_heads * width))
    lengths = []
    for head, mine in enumerate(values):
        alone = values.new_zeros(n_keys, n_heads, width)
        alone[:, head] = mine
        lengths.append((output(alone.flatten(1)) - nothing).float().norm(dim=-1))
    return torch.stack(lengths)
