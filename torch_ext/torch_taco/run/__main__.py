import sys

from torch_taco.run import main

sys.exit(main())
