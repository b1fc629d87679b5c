"""`python -m lfopt`: the command line."""

from lfopt.app.cli import main

if __name__ == "__main__":
    main()
