import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # small models: threads cost more than they give

# the same examples every time; with HEADLENS_FUZZ=100 others, and a hundred times as many (see `anything`)
settings.register_profile(
    "headlens",
    derandomize="HEADLENS_FUZZ" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("headlens")


@pytest.fixture(scope="session")
def chromium():
    """A browser for the whole session, started by the first test that asks for it; see `browser`."""
    from support.browser import launched

    with launched() as browser:
        yield browser
