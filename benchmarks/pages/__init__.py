"""Longer measurements that fill a page of the documentation, or print a table for one."""
