"""Which heads can leave the matrices, and which have to stay there silent."""

import pytest
from transformers import AlbertConfig

import headlens
from headlens.errors import InputError, RunError
from headlens.model.heads import Head
from headlens.pruning.plan import cut_alike, cut_each, least_important, silence
from support import families


@pytest.fixture(scope="module")
def llama():
    """Two layers of four heads that share two key-value heads."""
    return headlens.load(families.build("llama"))


def plans(lens, selector, make):
    plan = make(lens.anatomy, lens.anatomy.select(selector))
    return [(cut.kept, cut.kept_groups, cut.silent) for cut in plan.cuts], plan.n_cut, plan.n_silent


def test_masking_keeps_all_and_silences(llama):
    whole = (0, 1, 2, 3), (0, 1)
    assert plans(llama, "0.1,1.*", silence) == ([(*whole, (1,)), (*whole, (0, 1, 2, 3))], 0, 5)


def test_a_group_is_cut_when_all_its_heads_go(llama):
    found = plans(llama, "0.0-1,1.2,1.3,1.0", cut_each)
    assert found == ([((2, 3), (1,), ()), ((0, 1), (0,), (0,))], 4, 1)


def test_a_layer_keeps_one_silent_group(llama):
    assert plans(llama, "1.*", cut_each) == ([((0, 1, 2, 3), (0, 1), ()), ((0, 1), (0,), (0, 1))], 2, 2)


def test_alike_cuts_as_much_as_all_layers_can_lose(llama):
    found = plans(llama, "0.0-1,1.*", cut_alike)
    assert found == ([((2, 3), (1,), ()), ((0, 1), (0,), (0, 1))], 4, 2)
    found = plans(llama, "0.0-1,1.0", cut_alike)
    assert found == ([((0, 1, 2, 3), (0, 1), (0, 1)), ((0, 1, 2, 3), (0, 1), (0,))], 0, 3)


def test_shared_layers_lose_a_head_together():
    lens = headlens.load(families.build("albert"))
    assert isinstance(lens.model.config, AlbertConfig)
    message = "the layers 0-2 share one set of weights, so a head goes in all of them or in none"
    for make in (silence, cut_each, cut_alike):
        with pytest.raises(InputError, match=message):
            make(lens.anatomy, lens.anatomy.select("1.3"))
        assert make(lens.anatomy, lens.anatomy.select("*.3")).removed


def importance(tmp_path, rows):
    lines = ["stack,layer,head,method,importance,rank"]
    lines += [f"decoder,{layer},{head},each,{value},1" for layer, head, value in rows]
    (tmp_path / "importance.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*does not say which model it is about")
class TestChoosing:
    def test_the_least_important_go_and_of_equals_the_last(self, llama, tmp_path):
        values = [0.5, 0.1, 0.1, 0.9, -0.2, 0.1, 0.3, 0.4]
        run = importance(tmp_path, [(i // 4, i % 4, value) for i, value in enumerate(values)])
        assert least_important(llama, run, 0.875) == (Head("decoder", 1, 0),)
        assert least_important(llama, run, 0.75) == (Head("decoder", 1, 0), Head("decoder", 1, 1))
        half = {str(head) for head in least_important(llama, run, 0.5)}
        assert half == {"decoder.1.0", "decoder.1.1", "decoder.0.2", "decoder.0.1"}

    def test_heads_without_importance_stay(self, llama, tmp_path):
        run = importance(tmp_path, [(0, 0, 0.5), (0, 1, ""), (0, 2, 0.7)])
        assert least_important(llama, run, 0.75) == (Head("decoder", 0, 0), Head("decoder", 0, 2))
        with pytest.raises(InputError, match=r"To keep 0.5 of 8 heads 4 must go, and .* importance of 2"):
            least_important(llama, run, 0.5)

    @pytest.mark.parametrize(
        ("keep", "message"), [(0.99, "removes none. Keep 0.88"), (1.0, "found 1. Write")]
    )
    def test_shares_that_make_no_sense(self, llama, tmp_path, keep, message):
        run = importance(tmp_path, [(0, 0, 0.5)])
        with pytest.raises(InputError, match=message):
            least_important(llama, run, keep)

    def test_a_run_without_importance(self, llama, tmp_path):
        with pytest.raises(RunError, match=r"has no tags.csv and no importance.csv"):
            least_important(llama, tmp_path, 0.5)

    def test_a_run_of_another_model_of_the_same_shape(self, llama, tmp_path):
        run = importance(tmp_path, [(0, 0, 0.5)])
        (run / "run.json").write_text(
            '{"command": "ablate", "model": {"name": "other", "weights_sha256": {}}}'
        )
        for name, seed in (("mine", 0), ("other", 1)):
            families.build("llama", seed=seed).save_pretrained(tmp_path / name)
        with pytest.raises(RunError, match="other"):
            least_important(headlens.load(str(tmp_path / "mine")), run, 0.875)
