import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import pytest
import torch

torch.set_num_threads(1)  # small models: threads cost more than they give


@pytest.fixture(scope="session")
def chromium():
    """A browser for the whole session, started by the first test that asks for it; see `browser`."""
    from browser import launched

    with launched() as browser:
        yield browser
