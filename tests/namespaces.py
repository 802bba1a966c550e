"""The nodes of perf/cluster for tests, and the mark of those that need them."""

import importlib.util
import pathlib
import sys

import pytest


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


cluster = _load("perf_cluster", pathlib.Path(__file__).resolve().parents[1] / "perf" / "cluster" / "__init__.py")
_REASON = cluster.why_not()
needs_namespaces = pytest.mark.skipif(bool(_REASON), reason=_REASON or "namespaces can be made")
