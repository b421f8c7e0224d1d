"""How every process and command of Toolgate ends: the exit codes, as the help of `toolgate` explains them."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FINDINGS = 3
EXIT_NOT_ENOUGH = 4
EXIT_UNREACHABLE = 5
EXIT_SETTINGS = 78
EXIT_INTERRUPTED = 130
