"""What follows from settings and records: metrics, costs, and the convergence bound.

`metrics` and `run_metrics`: accuracy, time to accuracy, gains. `accounting`: the paper's cost
formulas, and the counts of a run. `channel`, `cost`, `device_work` and `run_costs`: seconds, joules
and bytes on the air. `bound`, `constants` and `run_bounds`: Theorem 1. `holdings`: who holds which
samples. `installation` and `kernel_timing`: the checks of `ebbflow doctor`.
"""
