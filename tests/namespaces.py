"""The nodes of torch_taco.bench.cluster for tests, and the mark of those that need them."""

import pytest
from torch_taco.bench import cluster

_REASON = cluster.why_not()
needs_namespaces = pytest.mark.skipif(bool(_REASON), reason=_REASON or "namespaces can be made")
