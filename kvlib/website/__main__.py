"""``python -m kvlib.website [FOLDER]``"""

import sys

from kvlib.website.build import main

if __name__ == "__main__":    # the twins' processes read this file again
    sys.exit(main(sys.argv[1:]))
