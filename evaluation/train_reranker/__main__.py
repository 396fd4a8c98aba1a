"""Entry point: ``python -m evaluation.train_reranker``."""

import sys

from evaluation.train_reranker.commands import main

if __name__ == "__main__":
    sys.exit(main())
