"""`python -m evaluation`."""

from evaluation.commands import main

if __name__ == "__main__":
    main()
