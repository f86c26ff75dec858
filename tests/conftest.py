import random
from concurrent.futures import Executor, Future

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples in every run; the time they take depends on other programs.
settings.register_profile(
    "anywhere",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anywhere")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Draw the same random numbers in every run, whichever tests this process ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - for code that uses the global generator
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks gain nothing from threads, and lose much where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class _InThisProcess(Executor):
    """Takes the place of a pool of processes, each of which imports torch for seconds."""

    def __init__(self, workers, context, initializer, arguments):
        initializer(*arguments)

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.fixture
def cells_in_one_process(monkeypatch):
    """Compute the cells of tables here; `test_figure_1_from_one_command` has real processes."""
    monkeypatch.setattr("bitprint.experiments.processes.ProcessPoolExecutor", _InThisProcess)
    monkeypatch.setattr("bitprint.experiments.processes.os.cpu_count", lambda: 1)
