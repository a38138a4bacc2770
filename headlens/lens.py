"""`Lens`, as users meet it: the model under the lens, and everything that headlens can tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headlens.errors import SelectorError
from headlens.model import lens as core
from headlens.model.heads import Head

if TYPE_CHECKING:
    from headlens.ablation.result import Sweep
    from headlens.model.weights import HeadWeights
    from headlens.residual.contributions import Contributions
    from headlens.scoring.classify import Classification
    from headlens.view.maps import AttentionMaps


class Lens(core.Lens):
    """A model under the lens: see `headlens.model.lens.Lens` for what it is made of."""

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
        from headlens.view.maps import attention_maps

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
        from headlens.model.weights import weights_of

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
        from headlens.residual.contributions import contributions

        return contributions(self, text, **options)

    def classify(
        self, corpus: Any = None, tags: Sequence[str] | None = None, **options: Any
    ) -> Classification:
        """Score every head on a corpus and tag it; see `headlens.classify`.

        Args:
            corpus: files, folders, datasets or a corpus; the bundled English sample by default.
            tags: which tags to look for; by default all that the corpus allows.
            **options: as there.

        Returns:
            What heads look at.
        """
        from headlens.scoring.classify import classify

        return classify(self, corpus, tags, **options)

    def sweep(self, benchmark: Any = None, **options: Any) -> Sweep:
        """Take heads out and measure what is lost; see `headlens.sweep`.

        Args:
            benchmark: ``KIND:FILE``, or a benchmark; the bundled sample for this kind of model by default.
            **options: sweep, mode, order, heads and so on, as there.

        Returns:
            Whether heads matter.
        """
        from headlens.ablation.sweep import sweep

        return sweep(self, benchmark, **options)


load = Lens.load
