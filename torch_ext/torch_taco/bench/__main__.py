import sys

from torch_taco.bench import main

if __name__ == "__main__":
    sys.exit(main())
