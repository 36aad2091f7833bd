"""A peer that never says anything."""

import time

time.sleep(60)
