"""The paper's tables and figures, reproduced and compared with the paper's own."""
