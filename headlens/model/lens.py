"""The model under the lens: a model, its tokenizer and its anatomy, and the `with` blocks that work on it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.errors import InputError, ModelError
from headlens.model.anatomy import Anatomy
from headlens.model.devices import input_device, moved, named_weights
from headlens.model.heads import Head, Site
from headlens.model.load import DeviceMap, Source, check_device_map, find, load_model
from headlens.model.replacements import Reference, edit_for, gather
from headlens.model.seam import Block, Edit, Observer, Seam, check_patterns, known
from headlens.model.trace import run
from headlens.util.formatting import mended

if TYPE_CHECKING:
    from typing_extensions import Self


class Lens:
    """A model under the lens.

    Args:
        model: a model of `transformers`.
        tokenizer: its tokenizer; without one only token ids can be looked at.
        source: where it was loaded from, None for a model made elsewhere.
        missing: names of weights that its checkpoint lacked.
        unused: names of weights that its checkpoint holds and it has no place for.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        source: Source | None = None,
        missing: Sequence[str] = (),
        unused: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.source = source
        self.missing = tuple(missing)
        self.unused = tuple(unused)

    @classmethod
    def load(
        cls,
        model: str | PreTrainedModel,
        tokenizer: Any = None,
        *,
        device: str = "auto",
        device_map: DeviceMap | None = None,
        dtype: str = "float32",
        revision: str | None = None,
        trust_remote_code: bool = False,
        allow_random_weights: bool = False,
    ) -> Self:
        """Put a model under the lens.

        Args:
            model: ``minilm``, a local directory, a .gguf file or a hub id; or a model of `transformers`.
            tokenizer: for a model that is given as such.
            device: "auto", "cpu", "cuda", "cuda:N" or "mps".
            device_map: for a model that is too large for one device: "auto" (or "balanced", "balanced_low_0",
                "sequential", or devices by the names of modules) spreads it over several, and over memory and
                disk where these do not suffice.
            dtype: "float32" by default, whatever the checkpoint is stored in.
            revision: branch, tag or commit on the hub.
            trust_remote_code: whether code that comes with a checkpoint may run.
            allow_random_weights: accept a checkpoint that lacks weights of the embeddings or blocks.

        Returns:
            The lens.

        Raises:
            ModelError: the model cannot be loaded, or lacks weights.
        """
        if isinstance(model, PreTrainedModel):
            return cls(model, tokenizer)
        if not isinstance(model, str):
            raise ModelError(
                f"Expected a model of transformers or a name, found {type(model).__name__}.",
                "Give the transformers model itself: of a PEFT model, model.base_model.model.",
            )
        check_device_map(device_map, device)  # before a large model is fetched
        loaded = load_model(find(model, revision, trust_remote_code), dtype, device, device_map, tokenizer)
        lens = cls(loaded.model, loaded.tokenizer, loaded.source, loaded.missing, loaded.unused)
        lacking = body_weights(lens)
        if lacking and not allow_random_weights:
            raise ModelError(
                f"The checkpoint {model!r} lacks {len(lacking)} weights of the model, such as {lacking[0]}; "
                "they would be random.",
                "Use a complete checkpoint, or --allow-random-weights to measure it all the same.",
            )
        return lens

    @property
    def anatomy(self) -> Anatomy:
        """The model's attention sites, heads and weights."""
        return known(self.model)[0]

    @property
    def seam(self) -> Seam:
        """The one door to the model's attention."""
        return known(self.model)[1]

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go; layers can be elsewhere, see `load`."""
        return input_device(self.model)

    def run(self, inputs: Mapping[str, Tensor]) -> Any:
        """Run the body of the model, without a task's head, for what its attention does.

        Args:
            inputs: input_ids, attention_mask and so on, on any device; those that the model does not take
                (token_type_ids for DistilBERT, say) are left out.

        Returns:
            What the body returns.
        """
        taken = self.arguments
        given: dict[str, Any] = {
            name: moved(value, self.device) for name, value in inputs.items() if name in taken
        }
        if "use_cache" in taken:  # keys and values of all layers would be kept, for tokens that never come
            given["use_cache"] = False
        return self.model.base_model(**given)

    @property
    def arguments(self) -> frozenset[str]:
        """Names of what the body of the model takes."""
        taken = inspect.signature(self.model.base_model.forward).parameters
        if "input_ids" not in taken:  # a wrapper that hands everything on, as in BartForCausalLM
            taken = inspect.signature(self.model.forward).parameters
        return frozenset(taken)

    def observe(
        self, observer: Observer, sites: Sequence[Site] | None = None, block_size: int | None = None
    ) -> Any:
        """Show every block of queries to an observer: ``with lens.observe(callback): lens.model(**inputs)``.

        Nothing is kept. The model's outputs do not change, and it is left as it was found, also after an
        exception; `with` blocks nest. Inside, the model is in eval mode.

        Args:
            observer: called as ``observer(site, block)`` with a `Block` of patterns
                [batch, head, start:stop, key]; it must not change what it is given.
            sites: where to look; everywhere by default.
            block_size: queries per block; by default as many as keep a block under 64 MiB.

        Returns:
            The `with` block.
        """
        return self.seam.observe(observer, sites, block_size)

    def edit(self, edit: Edit) -> Any:
        """Pass every site's output before W_O through a function: ``with lens.edit(function): ...``.

        Args:
            edit: receives the site and [batch, query, head, width], returns the same shape; where it
                changes nothing it returns the tensor it was given.

        Returns:
            The `with` block.
        """
        return self.seam.edit(edit)

    @contextmanager
    def ablate(
        self,
        heads: str | Head | Sequence[Head],
        mode: str = "zero",
        reference: Reference | Sequence[str] | None = None,
    ) -> Iterator[tuple[Head, ...]]:
        """Take heads out while the block lasts: ``with lens.ablate("2.8,3.*"): lens.model(**inputs)``.

        A head's slice of the concatenated head outputs *before W_O* is replaced; W_O's bias stays. A drop
        of nothing does not show that a head has no role: others can stand in for it.

        Args:
            heads: a selector such as ``2.8,3.*``, or heads.
            mode: what stands in their place: "zero"; "mean", their mean output over the reference's tokens;
                "resample", their output on another text of it; "uniform", what they put out when they give
                every visible key the same weight.
            reference: texts for "mean" and "resample", or what `headlens.model.replacements.gather` found.

        Yields:
            The heads that are out.

        Raises:
            SelectorError: a head does not exist.
            InputError: the mode does not exist, or lacks its reference.
        """

        chosen = self.anatomy.select(heads)
        if isinstance(reference, Sequence):
            reference = of_texts(self, reference, chosen)
        with self.seam.edit(edit_for(mode, chosen, self.seam, reference)):
            yield chosen

    def patterns(self, **inputs: Any) -> dict[Site, Tensor]:
        """Compute the patterns of one input, whole: for short inputs, since all of them are kept.

        Args:
            **inputs: the model's arguments, such as input_ids and attention_mask.

        Returns:
            For every site its attention weights [batch, head, query, key], after softmax, before dropout.

        Raises:
            InputError: they would take more memory than there is.
        """
        parts: dict[Site, list[Tensor]] = {site: [] for site in self.anatomy.sites}

        def keep(site: Site, block: Block) -> None:
            check_patterns(self.anatomy.sites, block)
            missing = block.n_keys - block.pattern.shape[-1]  # keys that no query of this block may see
            parts[site].append(torch.nn.functional.pad(block.pattern, (0, missing)))

        with torch.no_grad(), self.observe(keep):
            self.model(**{name: _to(value, self.device) for name, value in inputs.items()})
        return {site: torch.cat(blocks, dim=2) for site, blocks in parts.items() if blocks}


def _to(value: Any, device: torch.device) -> Any:
    return moved(value, device) if isinstance(value, Tensor) else value


# ---- Puts a model under the lens, and refuses one whose weights are missing


def body_weights(lens: Lens) -> tuple[str, ...]:
    """List the missing weights that attention depends on: those of the embeddings and blocks.

    Args:
        lens: a loaded model.

    Returns:
        Names; a missing pooler or task head is not among them.
    """
    model = lens.model
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    return tuple(name for name in lens.missing if name.startswith(prefix) and "pooler" not in name)


# ---- How long an input may be


_SANE = 10**9  # tokenizers without a limit claim one beyond this


def longest_input(lens: Lens) -> int | None:
    """Find the longest input that a model takes.

    Args:
        lens: the model with its tokenizer.

    Returns:
        A number of tokens, special ones included: the smaller of what the model's positions and its
        tokenizer allow; None where neither has a limit.
    """
    config = lens.model.config.get_text_config()
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    table = _position_table(lens)
    if table is not None:
        limits.append(table)
    if lens.tokenizer is not None and lens.tokenizer.model_max_length < _SANE:
        limits.append(lens.tokenizer.model_max_length)
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else None


def takes_positions(lens: Lens) -> bool:
    """Tell whether inputs that are padded on the left must say the position of each token.

    Args:
        lens: the model.

    Returns:
        False for models without positions of their own, and for those (RoBERTa) that count real tokens
        by themselves.
    """
    return "position_ids" in signature(lens.model.base_model.forward).parameters and not _counts_by_itself(
        lens
    )


def n_known(lens: Lens) -> int | None:
    """How many token ids the model knows, None where it does not tell."""
    return getattr(lens.model.get_input_embeddings(), "num_embeddings", None)


def check_ids(lens: Lens, rows: Iterable[Sequence[int]]) -> None:
    """Refuse token ids that the model has no embedding for.

    Args:
        lens: the model.
        rows: token ids of each input.

    Raises:
        InputError: there is one.
    """
    known = n_known(lens)
    largest = max((max(row, default=0) for row in rows), default=0)
    if known is not None and largest >= known:
        raise InputError(
            f"The tokenizer made the token id {largest}, but the model knows only ids below {known}.",
            "Give the tokenizer that belongs to this model.",
        )


def known_pad(lens: Lens, pad: int) -> int:
    """Keep a padding id that the model knows; of another one 0, since the attention mask hides it."""
    known = n_known(lens)
    return pad if known is None or pad < known else 0


def _position_tables(lens: Lens) -> list[nn.Embedding]:
    tables = [getattr(module, "position_embeddings", None) for module in lens.model.modules()]
    return [table for table in tables if isinstance(table, nn.Embedding)]


def _counts_by_itself(lens: Lens) -> bool:
    return any(table.padding_idx is not None for table in _position_tables(lens))


def _position_table(lens: Lens) -> int | None:
    """Rows of a table of position embeddings that are left for real tokens (RoBERTa begins after padding)."""
    for table in _position_tables(lens):
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return None


def of_texts(lens: Lens, texts: Sequence[str], heads: Sequence[Head], seed: int = 0) -> Reference:
    """Make a reference of some texts.

    Args:
        lens: the model, without ablation.
        texts: what the model reads, one by one.
        heads: the heads whose outputs are wanted.
        seed: see `gather`.

    Returns:
        The reference.

    Raises:
        InputError: there is no text, or it is one text instead of several.
    """
    if isinstance(texts, str) or not texts or lens.tokenizer is None:
        raise InputError(
            "Expected several texts as reference, and a lens with a tokenizer.",
            "Write reference=[text, text, ...].",
        )
    texts = [mended(text)[0] for text in texts]
    places = {(head.stack, head.layer) for head in heads}
    sites = [site for site in lens.anatomy.sites if (site.stack, site.layer) in places]

    def run() -> None:
        for text in texts:
            made = lens.tokenizer(text, return_tensors="pt")
            check_ids(lens, made["input_ids"].tolist())
            lens.run(made)

    return gather(lens.seam, run, sites, seed)


def fingerprint(model: nn.Module, unread: Sequence[str] = ()) -> str:
    """Hash a model's weights as they are in memory.

    Args:
        model: the model.
        unread: names of weights that are left out, such as a random pooler that nobody reads.

    Returns:
        Hex digest over names, types, shapes and bytes of its parameters and buffers.
    """
    digest = hashlib.sha256()
    for name, tensor in named_weights(model):
        if name in unread:
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ---- The blocks of a model (its layers), in the order in which they run, and the sites inside each


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a block in a pass through the model.

    Args:
        path: dotted path of the block's module; ALBERT calls one module several times.
        container: path of the list of modules that it stands in: blocks of one list hand their output on.
        sites: where attention is computed in this call, in order.
    """

    path: str
    container: str
    sites: tuple[Site, ...]


def blocks_of(lens: Lens) -> tuple[LayerCall, ...] | None:
    """Find a model's blocks by a dry run: the elements of the outermost lists of modules that hold its sites.

    Args:
        lens: the model.

    Returns:
        The calls of blocks, in order; None where some site is in no block, or in a nested call.
    """
    homes = {site: _home(lens.model, site.module) for site in lens.anatomy.sites}
    if not all(homes.values()):
        return None
    calls: list[tuple[str, list[Site]]] = []
    inside: list[str] = []
    stray: list[Site] = []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            calls.append((path, []))
            inside.append(path)

        return hook

    def note(site: Site, output: Any) -> Any:
        if len(inside) == 1:
            calls[-1][1].append(site)
        else:
            stray.append(site)
        return output

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(lens.edit(note))
        for path in dict.fromkeys(path for path in homes.values() if path):
            module = lens.model.get_submodule(path)
            stack.callback(module.register_forward_pre_hook(enter(path)).remove)
            stack.callback(module.register_forward_hook(lambda *_: inside.clear()).remove)
        run(lens.model)
    found = tuple(LayerCall(path, path.rpartition(".")[0], tuple(sites)) for path, sites in calls)
    seen = [site for block in found for site in block.sites]
    return found if not stray and seen == list(lens.anatomy.sites) else None


def first_block(blocks: Sequence[LayerCall], heads: Sequence[Head]) -> int:
    """Tell in which block the first of some heads is.

    Args:
        blocks: from `blocks_of`.
        heads: some heads.

    Returns:
        Its number in the order in which blocks run; 0 for none.
    """
    places = {(head.stack, head.layer) for head in heads}
    found = (
        index
        for index, block in enumerate(blocks)
        if any((site.stack, site.layer) in places for site in block.sites)
    )
    return next(found, 0)


def _home(model: nn.Module, path: str) -> str | None:
    """The outermost element of a list of modules that a module is in."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return ".".join(parts[: end + 1])
    return None


@contextmanager
def replaced_forward(modules: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Give modules another `forward` while the block lasts.

    Args:
        modules: each with the function that is called with its own forward and the arguments.

    Yields:
        Nothing.
    """
    with ExitStack() as stack:
        for module, function in modules:
            own = vars(module).get("forward")
            module.forward = _bound(function, module.forward)
            stack.callback(_restore, module, own)
        yield


def _bound(function: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: function(forward, *arguments, **named)


def _restore(module: nn.Module, own: Any) -> None:
    del module.forward
    if own is not None:
        module.forward = own
