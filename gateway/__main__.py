"""`python -m gateway` is `toolgate`."""

from gateway.cli.root import main

if __name__ == "__main__":
    main()
