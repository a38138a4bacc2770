"""How large pages are, how fast, and how weights become one byte each."""

import numpy as np
import pytest

from headlens.report.viewer import levels, quantise, viewer_data
from headlens.scoring.classify import read_corpus
from support import toys
from support.browser import open_page
from support.viewers import shows


def real_text(count):
    """Sentences of the sample until they make so many tokens, and their maps."""
    lens = toys.minilm()
    words = [word for _, sentence in read_corpus(None).sentences for word in sentence.text.split()]
    least, most = 1, len(words)
    while least < most:  # the most words that fit
        middle = (least + most + 1) // 2
        fits = len(lens.tokenizer(" ".join(words[:middle]), verbose=False)["input_ids"]) <= count
        least, most = (middle, most) if fits else (least, middle - 1)
    maps = lens.attention(" ".join(words[:least]))
    assert count - 8 <= len(maps.tokens) <= count
    return maps


@pytest.mark.parametrize(("count", "most"), [(60, 0.2), (200, 1.0), (500, 3.5)])
def test_maps_of_72_heads_over_real_text_are_small(count, most):
    (text,) = viewer_data([("", real_text(count))])["texts"]
    assert len(text["maps"]) == 72
    assert sum(map(len, text["maps"].values())) < most * 1e6  # characters of base64


@pytest.mark.parametrize("count", [1, 2, 40, 41, 80, 81, 300, 301, 512, 4096])
def test_levels(count):
    steps = levels(count)
    assert 2 <= len(steps) <= 256
    assert steps[0] == 0
    assert steps[-1] == 1
    assert (np.diff(steps) > 0).all()
    assert np.diff(steps).max() <= 1 / 200 + 1e-12


@pytest.mark.parametrize("count", [5, 60, 200, 512])
def test_the_nearest_level_is_chosen(count):
    steps = levels(count)
    random = np.random.default_rng(count)
    weights = np.concatenate([random.random(4000), random.random(4000) ** 6, steps]).astype(np.float32)
    chosen = steps[quantise(weights, steps)]
    nearest = np.abs(weights[:, None] - steps).min(1)
    assert np.abs(np.abs(weights - chosen) - nearest).max() < 1e-7
    assert (chosen[-len(steps) :] == steps).all()


@pytest.mark.parametrize("count", [5, 60, 200, 512])
def test_weights_from_half_the_first_step_on_stay_visible(count):
    steps = levels(count)
    half = steps[1] / 2
    weights = np.array([half * 1.001, half * 2, 0.01, 1], dtype=np.float32)
    assert (quantise(weights, steps) > 0).all()
    assert quantise(np.array([0, half * 0.99], dtype=np.float32), steps).tolist() == [0, 0]
    assert half <= 1 / (2 * 20**2) + 1e-12


def test_512_tokens_are_there_and_answer_within_three_seconds(chromium, tmp_path):
    path = tmp_path / "long.html"
    real_text(512).to_html(path)

    def watch(page):
        page.add_init_script(
            """window.answers = {};
            document.addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
                const head = document.getElementById("viewer").dataset.ready;
                if (head && !window.answers[head]) {
                    window.answers[head] = performance.now();
                    if (head === "0.0") document.body.dispatchEvent(new KeyboardEvent("keydown", {
                        key: "ArrowRight", bubbles: true }));
                }
            }).observe(document.getElementById("viewer"), { attributes: true }));"""
        )

    with open_page(chromium, path, prepare=watch) as page:
        shows(page, "0.1")
        answers = page.evaluate("window.answers")  # milliseconds since the page was asked for
        assert 0 < answers["0.0"] < answers["0.1"] < 3000
        assert page.locator(".hl-token").count() >= 2 * 504
