"""The paper's tables and figures, made again and held beside the paper's own."""
