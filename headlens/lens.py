"""`Lens`: a model, its tokenizer and its anatomy, with the `with` blocks that look at it and change it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headlens.anatomy import Anatomy
from headlens.attention import Edit, Seam
from headlens.block import Block, Observer
from headlens.devices import input_device, moved
from headlens.errors import SelectorError
from headlens.heads import Head, Site
from headlens.loading import Source
from headlens.memory import check_patterns
from headlens.seams import known

if TYPE_CHECKING:
    from headlens.ablation.reference import Reference
    from headlens.maps import AttentionMaps
    from headlens.redundancy.contributions.result import Contributions
    from headlens.weights import HeadWeights


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
            reference: texts for "mean" and "resample", or what `headlens.ablation.reference.gather` found.

        Yields:
            The heads that are out.

        Raises:
            SelectorError: a head does not exist.
            InputError: the mode does not exist, or lacks its reference.
        """
        from headlens.ablation.modes import edit_for
        from headlens.ablation.reference import of_texts

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

    def attention(self, text: str, pair: str | None = None, target: str | None = None) -> AttentionMaps:
        """Look at the attention of one text.

        Args:
            text: what the model reads.
            pair: a second text, for models that read two.
            target: what an encoder-decoder model writes (teacher forcing).

        Returns:
            Maps of all heads, with tokens and words; they show themselves in a notebook.

        Raises:
            InputError: the text is empty or longer than the model takes, or a target is missing.
        """
        from headlens.map_making import attention_maps

        return attention_maps(self, text, pair, target)

    def weights(self, head: str | Head) -> HeadWeights:
        """Get the weights of one head: ``lens.weights("2.0").ov.copying_score()``.

        Args:
            head: a selector of one head, such as ``2.0`` or ``cross.1.3``, or a head.

        Returns:
            Its W_Q, W_K, W_V and W_O, and the maps W_Q W_K^T and W_V W_O in factored form.

        Raises:
            SelectorError: it names no head of the model, or several.
            ModelError: the head has no such matrices of its own.
        """
        from headlens.weights import weights_of

        chosen = self.anatomy.select(head)
        if len(chosen) != 1:
            raise SelectorError(
                f"Expected one head, found {len(chosen)} in {str(head)!r}.",
                f"Write for example {self.anatomy.name(chosen[0])}.",
            )
        return weights_of(self, chosen[0])

    def contributions(self, text: str, **options: Any) -> Contributions:
        """Measure what each head writes for one text; see `headlens.contributions`.

        Args:
            text: what the model reads.
            **options: pair, target, heads, token, position and max_length, as there.

        Returns:
            What the heads write.
        """
        from headlens.redundancy.contributions.contributing import contributions

        return contributions(self, text, **options)


def _to(value: Any, device: torch.device) -> Any:
    return moved(value, device) if isinstance(value, Tensor) else value
