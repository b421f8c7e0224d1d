"""One worker: `python -m gateway.process PART`, see `worker`."""

import gc
import sys
from importlib import import_module
from typing import cast


def _main() -> int:
    # What is imported stays: to look through it for garbage, again and again, was a tenth of the start. `gateway.app`
    # has it looked through once, when it serves, and switches the collector on.
    gc.disable()
    worker = import_module("gateway.process.worker")
    return cast("int", worker.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(_main())
