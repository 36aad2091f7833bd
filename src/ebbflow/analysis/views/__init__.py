"""A run as pictures, pages and tables show it: computed once, drawn in several ways."""
