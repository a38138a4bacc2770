import os
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"}
# tests run side by side, in a process for each core, and their models are small: one thread for each of them
# and of the processes that they start, which must be known before torch and numpy are imported
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import pytest
from hypothesis import HealthCheck, settings

# the same examples every time; with HEADLENS_FUZZ=100 others, and a hundred times as many (see `hostile`)
settings.register_profile(
    "headlens",
    derandomize="HEADLENS_FUZZ" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("headlens")


def pytest_xdist_auto_num_workers(config):
    """No further processes for files that are named: starting them takes longer than most files do."""
    return 0 if all(Path(argument.partition("::")[0]).is_file() for argument in config.args) else None


def pytest_collection_modifyitems(items):
    """Mark what needs Chromium, and what is slow since it needs a Ray cluster."""
    for item in items:
        for fixture, mark in (("chromium", "browser"), ("cluster", "slow")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def cluster():
    """A Ray cluster for the whole session: engines find it, and their workers find what tests share."""
    from headlens.engine.ray import connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        ray, mine = connect(None)
    assert mine
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def chromium():
    """A browser for the whole session, started by the first test that asks for it; see `browser`."""
    from support.browser import launched

    with launched() as browser:
        yield browser
