"""A peer that never says anything."""

import time

if __name__ == "__main__":  # pytest imports every file, to look for doctests
    time.sleep(60)
