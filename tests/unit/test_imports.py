"""The pure layers load no heavy library: they start fast and can be read, tested and trusted on their own."""

import subprocess
import sys

import pytest

HEAVY = ("cryptography", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy")

# A fresh interpreter, because this one has long since loaded everything.
PROGRAM = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("layer", ["headgate.model", "headgate.lang", "headgate.decide"])
def test_a_pure_layer_loads_no_heavy_library(layer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, layer], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "headgate" in loaded
    assert not loaded & set(HEAVY)
