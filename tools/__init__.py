"""What the checkout is built with, and no part of the product."""
