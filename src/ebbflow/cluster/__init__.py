"""One experiment over many machines: an engine whose leaves are computed on a Ray cluster.

- `engine`: the engine; `chunks`: how a cohort is cut, and what a worker is told and returns;
- `worker`: what a worker does, without a word of Ray; `hosting`: the actor around it;
- `dispatch`: who computes what, in which order, and again if a worker is lost;
- `pool`: the actors, one for each node (or GPU), and what is put into the object store for them;
- `connection`: the cluster that is joined, or started for the run; `agreement`: whether a worker's
  processor, versions and data are the driver's, and by a `probe` whether its kernels compute the
  same; `wire`: tensors as arrays that travel.

Nothing here is imported unless ``engine.kind = "ray"``, and Ray only by `connection` and `pool`.
"""
